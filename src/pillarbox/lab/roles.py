"""What the processes of a cell do: an application that serves requests, a relay, a consumer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Engine

from .. import __version__
from ..event.destination import Destination
from ..event.message import Message
from ..policy.retry import RetryPolicy
from ..ports import Outcome, Publisher, Unknown
from ..publish.registry import make_publisher
from ..relay import OrderedRelay, Relay, RelaySettings
from ..store.engines import relay_engine, sqlite_engine
from ..store.ordered import PartitionStore
from ..store.rowlease import RowLeaseStore
from ..wiring import new_relay_id
from .alarms import Alarm
from .child import Line, Struck
from .consumers import WAYS
from .consumers.desk import Desk
from .engines import plain_engine
from .points import about, reach
from .senders import open_sender
from .strategies import RUNNABLE
from .strategies.shop import Shop

Task = Mapping[str, Any]

RETRY: Final = RetryPolicy(base=0.2, cap=1.0, max_attempts=50)
"""So that what was struck is sent again while one waits for it; no event is given up."""


def application(task: Task, line: Line) -> None:
    """Serve the requests that the lab hands out, one at a time, until it has no more."""
    strategy = RUNNABLE[task["strategy"]]
    destination = Destination(*task["destination"])
    engine = _engine(task["shop_url"], product=strategy.needs_relay)
    sender = (
        _NoSender()
        if strategy.needs_relay
        else open_sender(task["broker_url"], destination, task["transactional_id"] if strategy.transactional else None)
    )
    raise_alarm = strategy.program(Shop(engine, sender, destination))
    while (given := line.ask("application.ready").get("alarm")) is not None:
        alarm = Alarm(**given)
        with about(alarm.event_id):
            try:
                raise_alarm(alarm)
            except Exception as error:  # noqa: BLE001 - a request that fails is answered so, and the next one served
                line.tell("application.failed", error=f"{type(error).__name__}: {error}"[:300])
    sender.close()
    engine.dispose()


class _NoSender:
    """The client of the broker that an application with an outbox does not have."""

    def send(self, event_id: str, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        raise AssertionError("an application with an outbox sends nothing itself")

    def begin(self) -> None:
        raise AssertionError("an application with an outbox sends nothing itself")

    commit = abort = begin

    def close(self) -> None:
        """Nothing is open."""


def _engine(url: str, *, product: bool) -> Engine:
    # SQLite with transactions that are what they say is what the outbox's documentation tells its users to take.
    return sqlite_engine(url) if product and url.startswith("sqlite") else plain_engine(url)


def relay(task: Task, line: Line) -> None:
    """The product's relay, with a short lease, until it is told to end."""
    settings = RelaySettings(
        lease=task["lease"],
        broker_deadline=task["broker_deadline"],
        batch=task["batch"],
        poll_max=0.05,
        due_interval=0.1,
        probe_interval=0.2,
        retry=RETRY,
    )
    publisher = make_publisher(task["broker_url"], deadline=settings.broker_deadline)
    if "relay.stored" in task["waits_at"]:
        publisher = Forgetful(publisher)
    engine = relay_engine(task["shop_url"])
    name, host = new_relay_id(), socket.gethostname()
    working: Relay | OrderedRelay
    if task["ownership"] == "row":
        rows = RowLeaseStore(engine, relay_id=name, lease=settings.lease, host=host, version=__version__)
        working = Relay(rows, publisher, settings)
    else:
        partitions = PartitionStore(engine, relay_id=name, lease=settings.lease, host=host, version=__version__)
        working = OrderedRelay(partitions, publisher, settings)
    line.when_told(working.stop)
    working.run()


class Forgetful:
    """A publisher whose answers are thrown away where the lab strikes: what it sent is stored, and it cannot say so.

    Stands in for a lost answer where there is no network on which it could be lost.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.capabilities = publisher.capabilities

    def open(self) -> None:
        """As the publisher does."""
        self._publisher.open()

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send, and perhaps forget what came of it."""
        return self._forget(self._publisher.publish(messages))

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send, and perhaps forget what came of it."""
        return self._forget(self._publisher.publish_in_order(messages))

    def close(self) -> None:
        """As the publisher does."""
        self._publisher.close()

    def _forget(self, outcomes: list[Outcome]) -> list[Outcome]:
        try:
            reach("relay.stored")
        except Struck as lost:
            return [Unknown(str(lost), destination_healthy=False) for _ in outcomes]
        return outcomes


def consumer(task: Task, line: Line) -> None:
    """One way of consuming, until it is told to end."""
    way = {one.id: one for one in WAYS}[task["way"]]
    way.run(
        Desk(
            name=task["consumer"],
            database=task["consumers_url"],
            broker=task["broker_url"],
            source=task["source"],
            workers=task["workers"],
            limit=task["limit"],
            options=task["options"],
            goes_on=lambda: line.goes_on,
            when_told=line.when_told,
        )
    )


ROLES: Final[Mapping[str, Callable[[Task, Line], None]]] = {
    "application": application,
    "relay": relay,
    "consumer": consumer,
}
