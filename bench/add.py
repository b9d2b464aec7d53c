"""What ``outbox.add`` adds to a business transaction, against two hand-written inserts in the same transaction.

Three kinds of transaction take turns on one connection: the business row alone, with two inserts by the bare driver,
and with ``outbox.add``. Each commits, so that the disk is in the figures as it is in life. The inserts, and the call of
``add``, are also timed by themselves.
"""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median, quantiles
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, make_url, text

from bench import machine
from bench.places import DATABASES, fresh_database, server_of
from pillarbox.event.event import Event
from pillarbox.outbox import Outbox
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.store.engines import sqlite_engine
from pillarbox.store.install import install

TABLE = "CREATE TABLE shop_order (id INTEGER PRIMARY KEY, total VARCHAR(20) NOT NULL)"
BUSINESS = text("INSERT INTO shop_order (id, total) VALUES (:id, '19.90')")
EVENT = (
    "INSERT INTO outbox_event (event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key,"
    " destination, content_type, payload, occurred_at, recorded_at) VALUES (?, 'order.created', 1, 'order', ?, ?,"
    " 'orders', 'application/json', ?, ?, {now})"
)
READY = "INSERT INTO outbox_ready (partition_no, id, dest, lane) VALUES (?, ?, 0, ?)"
NOW = {"postgresql": "clock_timestamp()", "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')"}
KINDS = ("business", "raw", "add")
CALLS = {"raw": "raw call", "add": "add call"}

Write = Callable[[Connection, int], object]


def add_parser(commands: Any) -> None:
    """``python -m bench add``."""
    parser: argparse.ArgumentParser = commands.add_parser("add", help="outbox.add against two raw inserts")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--transactions", type=int, default=2_000, help="of each kind")
    parser.add_argument("--payload", type=int, default=300, metavar="BYTES")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, and say on what."""
    task = AddTask(options.database, options.transactions, options.payload)
    return compare(task) | {"version": server_of(task.database).version, "machine": machine.facts()}


@dataclass(frozen=True, slots=True)
class AddTask:
    """``transactions`` of each kind, with payloads of about ``payload_bytes``."""

    database: str
    transactions: int
    payload_bytes: int = 300


def compare(task: AddTask) -> dict[str, Any]:
    """Median and 99th percentile of each kind of transaction in microseconds, and how much longer `add` is than raw."""
    with fresh_database(task.database) as url:
        sqlite = make_url(url).get_backend_name() == "sqlite"
        engine = sqlite_engine(url) if sqlite else create_engine(url)
        try:
            install(engine, ["outbox"])
            return summarise(task, measure(engine, task))
        finally:
            engine.dispose()


def measure(engine: Engine, task: AddTask) -> dict[str, list[float]]:
    """Seconds of each transaction by kind, and of the writing alone (``raw call``, ``add call``).

    The first tenth of each is warm-up and left out.
    """
    payload = {"text": "x" * max(0, task.payload_bytes - 11)}
    writes: dict[str, Write] = {
        "business": lambda *_: None,
        "raw": by_hand(engine, payload),
        "add": by_add(engine, payload),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in (*KINDS, *CALLS.values())}
    with engine.connect() as connection:
        connection.execute(text(TABLE))
        connection.commit()
        for number in range(task.transactions * len(KINDS)):
            kind = KINDS[number % len(KINDS)]
            start = time.perf_counter()
            with connection.begin():
                connection.execute(BUSINESS, {"id": number})
                called = time.perf_counter()
                writes[kind](connection, number)
                if kind in CALLS:
                    seconds[CALLS[kind]].append(time.perf_counter() - called)
            seconds[kind].append(time.perf_counter() - start)
    return {kind: found[len(found) // 10 :] for kind, found in seconds.items()}


def by_add(engine: Engine, payload: dict[str, str]) -> Write:
    """As a user writes it."""
    outbox = Outbox(bind=engine)

    def write(connection: Connection, number: int) -> None:
        outbox.add(connection, Event(payload, type="order.created", aggregate=("order", number)), to="orders")

    return write


def by_hand(engine: Engine, payload: dict[str, str]) -> Write:
    """As one would write it without a library, for one driver: no checks, no limits, no guards."""
    dialect = engine.dialect.name
    mark = "?" if dialect == "sqlite" else "%s"
    now = NOW.get(dialect, "UTC_TIMESTAMP(6)")
    event = EVENT.replace("?", mark).format(now=now) + (" RETURNING id" if dialect == "postgresql" else "")
    ready = READY.replace("?", mark)

    def write(connection: Connection, number: int) -> None:
        moment: object = datetime.now(UTC)
        if dialect == "sqlite":
            moment = str(moment)
        key = str(number)
        cursor: Any = connection.connection.cursor()
        cursor.execute(event, (str(uuid.uuid4()), key, key, json.dumps(payload).encode(), moment))
        row_id = cursor.fetchone()[0] if dialect == "postgresql" else cursor.lastrowid
        lane = lane_of(key)
        cursor.execute(ready, (partition_of(lane), row_id, lane))
        cursor.close()

    return write


def summarise(task: AddTask, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """``added_microseconds`` is what the whole product costs a transaction more than hand-written inserts do.

    ``ratio``: how many times as long a transaction takes as with these; ``call_ratio``: the call as these alone.
    """
    middle = {kind: median(found) * 1e6 for kind, found in seconds.items()}
    return {
        "bench": "add",
        "database": task.database,
        "transactions": task.transactions,
        "payload_bytes": task.payload_bytes,
        "p50_microseconds": {kind: round(value) for kind, value in middle.items()},
        "p99_microseconds": {kind: round(quantiles(found, n=100)[98] * 1e6) for kind, found in seconds.items()},
        "added_microseconds": round(middle["add"] - middle["raw"], 1),
        "ratio": round(middle["add"] / middle["raw"], 3),
        "call_ratio": round(middle["add call"] / middle["raw call"], 3) if "add call" in middle else None,
    }


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    lines = [f"one event in a transaction on {summary['database']}, {summary['transactions']:,} of each kind"]
    for kind in summary["p50_microseconds"]:
        p50, p99 = summary["p50_microseconds"][kind], summary["p99_microseconds"][kind]
        lines.append(f"{kind:9} p50 {p50:>7,} us   p99 {p99:>7,} us")
    last = f"add costs {summary['added_microseconds']:,} us more than raw, ratio {summary['ratio']:.2f}"
    return "\n".join([*lines, last])
