"""What the inbox takes: one mark per event, and batches, against a transaction without marks and against a peer.

Every event is applied by one insert into a table of the handler's. ``bare``: that insert alone, a transaction each.
``single``: ``Inbox.once`` before it. ``batch``: ``once_each`` and one insert of many rows, a transaction for each
batch. ``peer``: faststream-outbox, which has no inbox and applies an event as often as it is delivered. It runs on
PostgreSQL alone, by the interpreter that ``--peer`` names (``pip install faststream-outbox[asyncpg]`` there). The first
three take turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, Table, insert, make_url, text

from bench import machine
from bench.places import DATABASES, fresh_database, server_of
from pillarbox.inbox import Inbox
from pillarbox.store.engines import relay_engine
from pillarbox.store.install import install

EFFECTS = Table("bench_effect", MetaData(), Column("id", BigInteger, primary_key=True, autoincrement=False))
PEER = Path(__file__).with_name("peer_faststream_outbox.py")
PEER_PATIENCE = 900.0

Apply = Callable[[Engine, range], None]


def add_parser(commands: Any) -> None:
    """``python -m bench inbox``."""
    parser: argparse.ArgumentParser = commands.add_parser("inbox", help="marks one by one, in batches, and a peer")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--events", type=int, default=2_000, help="of each side that takes them one by one, per round")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with faststream-outbox[asyncpg]")
    parser.add_argument("--peer-workers", type=int, default=1)
    parser.set_defaults(run=run, table=as_table)


@dataclass(frozen=True, slots=True)
class InboxTask:
    """``batch`` events share a transaction on the batch side, which gets ten times as many."""

    database: str
    events: int
    batch: int = 500
    rounds: int = 3
    peer: str | None = None
    peer_workers: int = 1


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, and say on what."""
    task = InboxTask(
        options.database, options.events, options.batch, options.rounds, options.peer, options.peer_workers
    )
    return measure(task) | {"version": server_of(task.database).version, "machine": machine.facts()}


def measure(task: InboxTask) -> dict[str, Any]:
    """Events a second and CPU microseconds of this process per event, the median of the rounds, by side."""
    rounds: dict[str, list[tuple[float, float]]] = {}
    with fresh_database(task.database) as url:
        engine = relay_engine(url)
        install(engine, ["inbox"])
        EFFECTS.create(engine)
        next_id = 0
        for _ in range(task.rounds):
            for side, apply in SIDES.items():
                events = task.events * 10 if side == "batch" else task.events
                numbers = range(next_id, next_id + events)
                next_id += events
                step = task.batch if side == "batch" else 1
                rounds.setdefault(side, []).append(timed(engine, apply, numbers, step))
        engine.dispose()
    if task.peer is not None:
        for _ in range(task.rounds):
            rounds.setdefault("peer", []).append(peer(task))
    return summarise(task, rounds)


def timed(engine: Engine, apply: Apply, numbers: range, step: int) -> tuple[float, float]:
    """Events a second and CPU seconds an event."""
    began, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(numbers), step):
        apply(engine, numbers[start : start + step])
    return len(numbers) / (time.perf_counter() - began), (time.process_time() - cpu) / len(numbers)


def _bare(engine: Engine, numbers: range) -> None:
    with engine.begin() as connection:
        _effect(connection, numbers)


def _single(engine: Engine, numbers: range) -> None:
    with engine.begin() as connection:
        if INBOX.once(connection, _event_id(numbers[0])):
            _effect(connection, numbers)


def _batch(engine: Engine, numbers: range) -> None:
    with engine.begin() as connection:
        new = INBOX.once_each(connection, [_event_id(one) for one in numbers])
        assert len(new) == len(numbers)
        connection.execute(insert(EFFECTS), [{"id": one} for one in numbers])


def _effect(connection: Connection, numbers: range) -> None:
    connection.execute(text("INSERT INTO bench_effect (id) VALUES (:id)"), {"id": numbers[0]})


def _event_id(number: int) -> str:
    return f"01977a3c-{number >> 32 & 0xFFFF:04x}-7000-8000-{number & 0xFFFFFFFFFFFF:012x}"


INBOX = Inbox("bench")
SIDES: dict[str, Apply] = {"bare": _bare, "single": _single, "batch": _batch}


def peer(task: InboxTask) -> tuple[float, float]:
    """The same of the peer, in its own process and on a database of its own."""
    if task.peer is None or task.database != "postgres":
        raise ValueError("the peer runs on PostgreSQL, by the interpreter that --peer names")
    with fresh_database("postgres") as url:
        address = make_url(url).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
        command = [task.peer, str(PEER), address, str(task.events), str(task.peer_workers)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PEER_PATIENCE, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["events"] == task.events
    return found["events"] / found["seconds"], found["cpu"] / found["events"]


def summarise(task: InboxTask, rounds: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """``single_to_peer``: how many times as many events a second one by one as the peer; by CPU, likewise. Pure."""
    rates = {side: round(median(rate for rate, _ in found)) for side, found in rounds.items()}
    cpu = {side: round(median(cost for _, cost in found) * 1e6, 1) for side, found in rounds.items()}
    has_peer = "peer" in rates
    return {
        "bench": "inbox",
        "database": task.database,
        "events": task.events,
        "batch": task.batch,
        "rounds": task.rounds,
        "events_per_second": rates,
        "cpu_microseconds_per_event": cpu,
        "single_to_peer": round(rates["single"] / rates["peer"], 2) if has_peer else None,
        "single_to_peer_by_cpu": round(cpu["peer"] / cpu["single"], 2) if has_peer else None,
    }


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{summary['database']}, {summary['events']:,} events, batches of {summary['batch']}"]
    for side, rate in summary["events_per_second"].items():
        lines.append(
            f"{side:>8} {rate:>10,}/s {summary['cpu_microseconds_per_event'][side]:>10,.1f} us of CPU an event"
        )
    if summary["single_to_peer"] is not None:
        lines.append(
            f"single is {summary['single_to_peer']} times the peer's rate, {summary['single_to_peer_by_cpu']} by CPU"
        )
    return "\n".join(lines)
