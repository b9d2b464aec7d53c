"""A consumer against a raw loop that does the same by the bare driver: decode, mark, one row of effect each, commit.

Both get the same messages from memory, so that the figures are those of the consumer and its database. One by one
(a transaction per event) and in batches; the sides take turns, and the median round counts. Beside the rate stands the
processor time of the consuming process per event, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from uuid import uuid4

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, func, insert, select
from sqlalchemy.orm import Session

from bench import machine, raw_consume
from bench.places import DATABASES, fresh_database, server_of
from pillarbox.consume import Consumer, Received
from pillarbox.consume.engine import consumer_engine
from pillarbox.ports import Incoming
from pillarbox.store.install import install

SINGLE, BATCH = "one by one", "in batches"
EFFECT = Table(
    "bench_effect",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("event_id", String(100), nullable=False),
    Column("total", Integer, nullable=False),
)


@dataclass(frozen=True, slots=True)
class ConsumeTask:
    """``single`` and ``batched`` events a round; ``batch`` of them share a transaction in the second kind."""

    database: str
    single: int = 2_000
    batched: int = 20_000
    batch: int = 500
    rounds: int = 3


def add_parser(commands: Any) -> None:
    """``python -m bench consume``."""
    parser: argparse.ArgumentParser = commands.add_parser("consume", help="a consumer against a raw loop, no broker")
    parser.add_argument("--database", choices=[one for one in DATABASES if one != "sqlite"], default="postgres")
    parser.add_argument("--single", type=int, default=2_000, help="events one by one, each round")
    parser.add_argument("--batched", type=int, default=20_000, help="events in batches, each round")
    parser.add_argument("--batch", type=int, default=500, help="events of one transaction")
    parser.add_argument("--rounds", type=int, default=3)
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, and say on what."""
    task = ConsumeTask(options.database, options.single, options.batched, options.batch, options.rounds)
    return compare(task) | {"version": server_of(task.database).version, "machine": machine.facts()}


def compare(task: ConsumeTask) -> dict[str, Any]:
    """Events a second and microseconds of processor per event, of both sides and kinds."""
    found: dict[tuple[str, str], list[Round]] = {}
    with fresh_database(task.database) as url:
        engine = create_engine(url)
        install(engine, ["inbox"])
        EFFECT.create(engine)
        for _ in range(task.rounds):
            for kind, number, batch in ((SINGLE, task.single, 1), (BATCH, task.batched, task.batch)):
                for side, consume in (("raw", by_hand), ("product", by_product)):
                    messages = make_messages(number)
                    found.setdefault((kind, side), []).append(timed(engine, url, messages, batch, consume))
        engine.dispose()
    return summarise(task, found)


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement."""

    per_second: float
    cpu_microseconds: float


def timed(
    engine: Engine, url: str, messages: Sequence[Incoming], batch: int, consume: Callable[[str, Any, int], None]
) -> Round:
    """Consume the messages; RuntimeError unless each has its row."""
    before, cpu, start = rows(engine), time.process_time(), time.perf_counter()
    consume(url, messages, batch)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if rows(engine) - before != len(messages):
        raise RuntimeError(f"{rows(engine) - before} effects of {len(messages)} events")
    return Round(len(messages) / seconds, cpu / len(messages) * 1e6)


def rows(engine: Engine) -> int:
    """How many effects there are."""
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(EFFECT)) or 0)


def make_messages(number: int) -> list[Incoming]:
    """New events of 100 keys, as a source delivers them."""
    moment = "2026-01-02T03:04:05.678901Z"
    return [
        Incoming(
            "orders",
            {"id": str(uuid4()), "eventType": "order.created", "schemaVersion": "1", "occurredAt": moment},
            b'{"total":%d,"text":"%s"}' % (n, b"x" * 250),
            f"order-{n % 100}",
            n,
            redelivered=False,
        )
        for n in range(number)
    ]


def by_hand(url: str, messages: Sequence[Incoming], batch: int) -> None:
    """The raw loop."""
    raw_consume.consume(url, messages, batch)


def by_product(url: str, messages: Sequence[Incoming], batch: int) -> None:
    """As a user writes it."""
    engine = consumer_engine(url)
    feed = Feed(messages)
    consumer = Consumer("bench", database=engine, broker=feed, sources=["orders"], batch=batch, ahead=1_000)
    feed.when_done = consumer.stop
    if batch == 1:

        @consumer.on("order.created")
        def one(event: Received[dict[str, Any]], session: Session) -> None:
            session.execute(insert(EFFECT), {"event_id": event.id, "total": event.payload["total"]})

    else:

        @consumer.on_batch("order.created")
        def many(events: list[Received[dict[str, Any]]], session: Session) -> None:
            session.execute(insert(EFFECT), [{"event_id": e.id, "total": e.payload["total"]} for e in events])

    consumer.run()
    engine.dispose()


class Feed:
    """A broker that has everything in memory, and its source."""

    def __init__(self, messages: Sequence[Incoming]) -> None:
        self._messages = messages
        self._next = 0
        self._left = len(messages)
        self.when_done: Callable[[], None] = lambda: None

    def source(self, _consumer: str, _sources: Sequence[str]) -> Feed:
        return self

    def open(self) -> None:
        """Nothing to connect to."""

    def poll(self, _timeout: float, limit: int) -> list[Incoming]:
        found = list(self._messages[self._next : self._next + limit])
        self._next += len(found)
        return found

    def holds(self, _incoming: Incoming) -> bool:
        return True

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        self._left -= len(done)
        if not self._left:
            self.when_done()

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        raise RuntimeError(f"{incoming.headers} was set aside: {reason} after {attempts}")

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        raise RuntimeError(f"{incoming.headers} was put back for {seconds} s: {reason} after {attempts}")

    def close(self) -> None:
        """Nothing to end."""


def summarise(task: ConsumeTask, found: dict[tuple[str, str], list[Round]]) -> dict[str, Any]:
    """``ratio``: rate of the product to that of the raw loop."""
    rates = {pair: median(one.per_second for one in rounds) for pair, rounds in found.items()}
    summary: dict[str, Any] = {"bench": "consume", "database": task.database, "batch": task.batch}
    for kind, name in ((SINGLE, "single"), (BATCH, "batched")):
        summary[name] = {
            "events_per_second": {side: round(rates[kind, side]) for side in ("raw", "product")},
            "cpu_microseconds_per_event": {
                side: round(median(one.cpu_microseconds for one in found[kind, side]), 1) for side in ("raw", "product")
            },
            "ratio": round(rates[kind, "product"] / rates[kind, "raw"], 3),
        }
    return summary


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    lines = [f"consuming on {summary['database']}, {summary['batch']} events in a batch, one row of effect each"]
    for name, title in (("single", SINGLE), ("batched", BATCH)):
        one = summary[name]
        for side in ("raw", "product"):
            rate, cpu = one["events_per_second"][side], one["cpu_microseconds_per_event"][side]
            lines.append(f"{title:11} {side:8} {rate:>8,} events/s  {cpu:>8,} us processor per event")
        lines.append(f"{title:11} ratio {one['ratio']:.2f}")
    return "\n".join(lines)
