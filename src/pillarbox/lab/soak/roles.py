"""The three programs of a soak: who writes, who relays, who consumes. Each runs as a process, and is killed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, insert, table
from sqlalchemy import column as sql_column
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ...consume import Consumer, Received
from ...errors import PillarboxError
from ...event.destination import Destination
from ...event.event import Event
from ...event.ids import EventIds
from ...event.types import event_type
from ...outbox import Outbox
from ...policy.retry import RetryPolicy
from ...relay import RelaySettings
from ...store.engines import Timeouts, relay_engine, sqlite_engine
from ...wiring import relay_for
from .child import stop_on_sigterm
from .tables import names, next_numbers

KEY_HEADER = "soak-key"
NUMBER_HEADER = "soak-number"
"""Which alarm of its device an event tells of, counted from 1 without gaps: what order is judged by."""

_log = logging.getLogger("pillarbox.lab")
_alarm = table("lab_alarm", sql_column("event_id"), sql_column("device"))
_notification = table("lab_notification", sql_column("consumer"), sql_column("event_id"))


@event_type("soak.alarm-raised", version=1)
@dataclass(frozen=True, slots=True)
class AlarmRaised:
    """What the consumers are told."""

    device: str
    number: int


class Withdrawn(Exception):
    """The application changes its mind when all is written: everything is rolled back."""


# Writing ------------------------------------------------------------------------------------------------------------


def writer(task: Mapping[str, Any]) -> None:
    """Write transactions of one to five events at a pace, until SIGTERM: business rows and events together."""
    ended = threading.Event()
    stop_on_sigterm(ended.set)
    engine = engine_for(task["shop_url"])
    dice = Random(task["seed"])
    devices = names(task["keys"])
    add = adding(engine, Destination(*task["destination"]))
    # A driver's own error comes as it is where a new connection is being set up.
    drivers_own: type[Exception] = engine.dialect.import_dbapi().Error
    due = time.monotonic()
    while not ended.is_set():
        chosen = dice.sample(devices, k=min(len(devices), dice.randint(1, 5)))
        try:
            add(chosen, withdraw=dice.random() < task["withdrawn"])
        except Withdrawn:
            pass
        except (SQLAlchemyError, PillarboxError, drivers_own) as error:
            # Committed or not, the tables will tell. A real application tells its user that it does not know.
            _log.warning("a transaction failed: %s: %s", type(error).__name__, str(error)[:300])
            engine.dispose()
            ended.wait(0.2)
        due = max(due + len(chosen) / task["rate"], time.monotonic() - 1.0)  # catches up, but not for long
        ended.wait(max(0.0, due - time.monotonic()))


def adding(engine: Engine, to: Destination) -> Callable[..., None]:
    """The function that writes one transaction."""
    outbox, ids = Outbox(bind=engine), EventIds()

    def add(devices: list[str], *, withdraw: bool = False) -> None:
        with Session(engine) as session, session.begin():
            numbers = next_numbers(session.connection(), devices)
            events = [_event(ids.new(), device, number) for device, number in numbers.items()]
            session.execute(insert(_alarm), [{"event_id": str(e.id), "device": e.payload.device} for e in events])
            outbox.add_all(session, events, to=to)
            if withdraw:
                session.flush()
                raise Withdrawn

    return add


def _event(event_id: UUID, device: str, number: int) -> Event[AlarmRaised]:
    headers = {KEY_HEADER: device, NUMBER_HEADER: str(number)}
    return Event(AlarmRaised(device, number), aggregate=("device", device), headers=headers, id=event_id)


def engine_for(url: str) -> Engine:
    """An engine as an application has it: READ COMMITTED, with deadlines."""
    if url.startswith("sqlite"):
        return sqlite_engine(url)
    return relay_engine(url, pool_size=1, timeouts=Timeouts(statement=10))


# Relaying -----------------------------------------------------------------------------------------------------------


def relay(task: Mapping[str, Any]) -> None:
    """The product's relay, as an application embeds it."""
    given = dict(task["relay"])
    settings = RelaySettings(**given | {"retry": RetryPolicy(**given["retry"])})
    working = relay_for(task["shop_url"], task["broker_url"], settings, ownership=task["ownership"])
    stop_on_sigterm(working.stop)
    working.run()


# Consuming ----------------------------------------------------------------------------------------------------------


def consumer(task: Mapping[str, Any]) -> None:
    """The product's consumer with its inbox, as an application writes it."""
    name = task["consumer"]
    consuming = Consumer(
        name,
        database=task["consumers_url"],
        broker=task["broker_url"],
        sources=[task["source"]],
        # Handlers fail here only because their database is disturbed: such a fault must not end in a dead letter.
        retry=RetryPolicy(cap=5.0, max_attempts=1000),
        ahead=50,
        drain=5.0,
        options=task["reading"],
    )

    @consuming.on(AlarmRaised)
    def notify(event: Received[AlarmRaised], connection: Connection) -> None:
        connection.execute(insert(_notification), [{"consumer": name, "event_id": event.id}])

    consuming.run()


ROLES: dict[str, Callable[[Mapping[str, Any]], None]] = {"writer": writer, "relay": relay, "consumer": consumer}
