"""A relay at work whose connection is killed before and after each of its statements in turn."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from pillarbox.event.message import Message
from pillarbox.ports import Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, Relay
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.rowlease import RowLeaseStore
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import lost_or_dead, out_of_order, running, settings

LEASE = 2.0
MOST = {"partition": 18, "row": 12}
"""Different statements, before or after, that a relay makes within seconds whatever its luck."""


class Killer:
    """Kills the session of each statement once before it is sent, and once after it was carried out."""

    def __init__(self, lab: Lab, engine: Engine) -> None:
        self.killed: list[tuple[str, bool]] = []
        self._lab = lab
        self._lock = threading.Lock()
        self._next = 0.0
        self.armed = True
        event.listen(engine, "before_cursor_execute", lambda c, _, statement, *rest: self._at(c, statement, False))
        event.listen(engine, "after_cursor_execute", lambda c, _, statement, *rest: self._at(c, statement, True))

    def _at(self, connection: Connection, statement: str, after: bool) -> None:
        this = (shape(statement), after)
        with self._lock:
            # Two kills of one transaction are an outage, and in between the relay is to work.
            if not self.armed or this in self.killed or time.monotonic() < self._next:
                return
            self.killed.append(this)
            self._next = time.monotonic() + 0.03
        driver: Any = connection.connection.driver_connection
        with self._lab.world.engine.begin() as other:
            if self._lab.world.is_postgres:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({driver.info.backend_pid}, 5000)")
            else:
                with suppress(DBAPIError):  # it is gone already: 1094
                    other.exec_driver_sql(f"KILL {driver.thread_id()}")


def shape(statement: str) -> str:
    """Without keys and ids, which differ from one batch to the next."""
    return re.sub(r"'[^']*'|(%s)|[\d,\s()]+", " ", statement)[:40].strip()


@pytest.mark.parametrize("kind", ["partition", "row"])
def test_a_connection_killed_at_each_statement_loses_nothing(lab: Lab, broker: MemoryPublisher, kind: str) -> None:
    """Some fail, so that parking, holds and what is due again are among the statements."""
    broker.answer = busy_now_and_then()
    engine = relay_engine(lab.world.url)
    killer = Killer(lab, engine)
    one: OrderedRelay | Relay
    if kind == "partition":
        one = OrderedRelay(PartitionStore(engine, relay_id="a", lease=LEASE), broker, settings(LEASE))
    else:
        one = Relay(RowLeaseStore(engine, relay_id="a", lease=LEASE), broker, settings(LEASE))
    with running(one, "a"):
        with lab.load():
            wait_until(lambda: len(killer.killed) >= MOST[kind], 20, f"{MOST[kind]} kills; so far: {killer.killed}")
            killer.armed = False
            sent = lab.sent()
            wait_until(lambda: lab.sent() > sent + 50, 20, "going on")
        wait_until(lambda: lab.waiting() == 0, 20, "the end")
    assert one.stats.dead == 0
    assert lost_or_dead(lab, broker.arrived) == []
    if kind == "partition":
        assert out_of_order(lab, broker.arrived) == []


def busy_now_and_then() -> Callable[[Message], Rejected | None]:
    """Every thirtieth first attempt fails."""
    count = itertools.count(1)
    return lambda message: Rejected("busy", permanent=False) if next(count) % 30 == 0 else None
