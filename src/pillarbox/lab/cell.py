"""One cell: its servers made, its events struck, everything brought to rest, the facts read and judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import PillarboxError
from .engines import plain_engine
from .grounds import broker_ground, database_ground
from .model import CellKey, CellResult, EventId, Facts, Fail, LoseAnswer, NotVisible, Planned, Verdict
from .options import LabOptions
from .ports import BrokerGround, DatabaseGround
from .processes import Crew
from .reading import Reading
from .recorder import by_way, seen_in_servers
from .schedule import schedule
from .senders import sender_settings
from .stage import BROKER_DEADLINE, LEASE, BrokerLink, Cancelled, Stage
from .strategies import RUNNABLE
from .striking.application import strike_applications
from .striking.consumer import read_everything, strike_consumers
from .striking.relay import rest, strike_relays
from .verdict import judge
from .windows import window

READERS: Final = ("C0", "C2")
"""Who reads everything at the end of a sending cell: the one shows repetitions, the other is how it should be done."""

JUDGED: Final = ("C2",)
"""By whom a sending cell is judged: what repetitions do to a consumer without idempotency is that consumer's fault."""


IN_PROCESS: Final = frozenset({"sender.acknowledged", "sender.committed", "relay.stored"})
"""Points at which an answer that has arrived is thrown away, where it cannot be lost on the way."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cell saw of the servers that is the same for all cells."""

    servers: Mapping[str, Any]
    clock_offsets: Mapping[str, float | NotVisible]


def run_cell(
    options: LabOptions,
    key: CellKey,
    plan: Planned,
    crew: Crew,
    cancelled: threading.Event,
    command: str,
    broker_link: BrokerLink | None = None,
) -> tuple[CellResult, Seen | None]:
    """Run it; what goes wrong with the lab itself becomes the result's ``trouble``. Raises stage.Cancelled only."""
    began = time.monotonic()
    failure: PillarboxError | Cancelled | None = None
    try:
        with (
            database_ground(options.database, str(key)) as database,
            broker_ground(options.broker, str(key)) as broker,
        ):
            try:
                result, seen = _run(options, key, plan, crew, cancelled, database, broker, broker_link)
            except (PillarboxError, Cancelled) as error:  # not the grounds' trouble: they are removed as after success
                failure = error
    except PillarboxError as error:
        failure = error
    if isinstance(failure, Cancelled):
        raise failure
    seconds = time.monotonic() - began
    if failure is not None:
        return CellResult(key, plan, command=command, seconds=seconds, trouble=failure.message), None
    return replace(result, command=command, seconds=seconds), seen


def _run(
    options: LabOptions,
    key: CellKey,
    plan: Planned,
    crew: Crew,
    cancelled: threading.Event,
    database: DatabaseGround,
    broker: BrokerGround,
    broker_link: BrokerLink | None,
) -> tuple[CellResult, Seen]:
    strokes = schedule(options.seed, key, options.rounds)
    stage = Stage(
        key, plan, strokes, options.seed, crew, database, broker, crew.log_of(str(key)), cancelled, broker_link
    )
    stage.plan = plan = _possible_here(stage)
    consuming = window(key.window).side == "consuming"
    ways = (key.strategy,) if consuming else READERS
    for way in ways:
        broker.source(stage.name_of(way))  # a queue gets only what is sent once it is there
    before = broker.state()
    trouble = None
    try:
        with Reading(database) as reading:
            _strike(stage, reading, consuming=consuming)
    except PillarboxError as error:
        trouble = f"{error.message} {_tail(stage)}".strip()
    finally:
        stage.end_all()
    facts = _facts(stage)
    offsets = {database.name: database.clock_offset(), broker.name: broker.clock_offset()}
    verdicts = () if trouble else tuple(_judge(one, key.strategy if consuming else None) for one in facts)
    seen = Seen({"database": database.settings(), "broker": broker.settings()}, offsets)
    committed = {way: broker.committed(stage.name_of(way)) for way in ways}
    result = CellResult(
        key,
        plan,
        facts=facts,
        verdicts=verdicts,
        timeline=stage.recorder.timeline(
            seen_in_servers(facts, float(offsets[database.name]), offsets[broker.name])  # type: ignore[arg-type]
        ),
        exits=stage.recorder.exits,
        settings=_settings(stage, seen, consuming=consuming),
        before=before,
        after={**broker.state(), "committed": committed},
        trouble=trouble,
    )
    return result, seen


def _strike(stage: Stage, reading: Reading, *, consuming: bool) -> None:
    strategy, fault = stage.key.strategy, stage.plan.fault
    if consuming:
        strike_consumers(stage, strategy, reading)
        return
    if fault.point.startswith("relay."):
        strike_relays(stage, strategy, reading)
    elif RUNNABLE[strategy].needs_relay:
        relay = stage.relay(strategy.removeprefix("S5-"))
        strike_applications(stage, strategy)
        rest(stage, relay, reading)
    else:
        strike_applications(stage, strategy)
    read_everything(stage, READERS, reading)


def _possible_here(stage: Stage) -> Planned:
    """The plan, with the fault that can be brought about on these servers where no proxy can stand in between."""
    plan, fault = stage.plan, stage.plan.fault
    if not isinstance(fault, LoseAnswer) or fault.server != "broker" or stage.broker_link is not None:
        return plan
    if stage.broker.address is not None and not isinstance(stage.broker.through(stage.broker.address.port), NotVisible):
        return plan
    point = "relay.stored" if fault.point.startswith("relay.") else "sender.acknowledged"
    if fault.point == "s4.database-committed":
        point = "sender.committed"
    return replace(plan, fault=Fail(point))


def _facts(stage: Stage) -> tuple[Facts, ...]:
    ids = [EventId(one.alarm.event_id) for one in stage.strokes]
    names = {name: way for way, name in stage.names.items()}
    return tuple(
        replace(one, marks=by_way(one.marks, names), effects=by_way(one.effects, names))
        for one in stage.database.facts(ids, stage.broker.records())
        if one.event_id not in stage.apart
    )


def _judge(facts: Facts, way: str | None) -> Verdict:
    if way is not None:
        return judge(facts, (way,))
    return replace(judge(facts, JUDGED), applied=judge(facts, READERS).applied)


def _settings(stage: Stage, seen: Seen, *, consuming: bool) -> Mapping[str, Any]:
    fault = stage.plan.fault
    found: dict[str, Any] = {
        "fault": type(fault).__name__,
        "fault_point": fault.point,
        "struck_events": len(stage.struck),
        "opening_events": len(stage.apart),
        "exits": [f"{one.role}: {one.how}" for one in stage.recorder.exits],
    }
    if isinstance(fault, LoseAnswer):
        found["fault_server"] = fault.server
    if fault.point in IN_PROCESS:
        found["fault_note"] = "no proxy can stand before this broker: its answer is thrown away in the process instead"
    transactional = not consuming and RUNNABLE[stage.key.strategy].transactional
    found |= {f"session.{name}": value for name, value in _session(stage.database.shop_url).items()}
    found |= _prefixed("sender", sender_settings(stage.broker.url, transactional=transactional))
    if fault.point.startswith("relay."):
        found |= {"relay.lease_seconds": LEASE, "relay.broker_deadline_seconds": BROKER_DEADLINE}
    found |= _prefixed("database", seen.servers["database"]) | _prefixed("broker", seen.servers["broker"])
    if consuming:
        automatic = stage.key.strategy == "CA"
        found["consumer.auto_commit"] = automatic
        found["consumer.acknowledgement"] = "on delivery" if automatic else "after the database's commit"
    return found


def _session(url: str) -> Mapping[str, Any]:
    """What manages the naive programs' transactions: session, driver, isolation level, autocommit."""
    engine = plain_engine(url)
    try:
        with engine.connect() as connection:
            return {
                "kind": "sqlalchemy.orm.Session",
                "driver": engine.dialect.driver,
                "isolation_level": connection.get_isolation_level(),
                "autocommit": connection.get_isolation_level() == "AUTOCOMMIT",
            }
    finally:
        engine.dispose()


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _tail(stage: Stage) -> str:
    text = stage.log.read_text(errors="replace")[-600:] if stage.log.exists() else ""
    return f"Log: {text}" if text else ""
