"""What the outbox adds to a business transaction of five ordinary statements, written as an application writes it.

The transaction reads a customer and a stock level, inserts an order and two of its lines in two statements, and takes
the stock down. The same with ``outbox.add``; the two take turns on one connection, or on several at once.
"""

from __future__ import annotations

import argparse
import threading
import time
from statistics import median, quantiles
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    create_engine,
    insert,
    make_url,
    select,
    update,
)

from bench import machine
from bench.places import DATABASES, fresh_database, installed, server_of
from pillarbox.event.event import Event
from pillarbox.outbox import Outbox
from pillarbox.store.engines import sqlite_engine

CUSTOMERS = 1000
KINDS = ("without", "with")
shop = MetaData()
customer = Table(
    "customer", shop, Column("id", Integer, primary_key=True, autoincrement=False), Column("name", String(100))
)
stock = Table("stock", shop, Column("id", Integer, primary_key=True, autoincrement=False), Column("level", Integer))
order = Table(
    "shop_order",
    shop,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("customer_id", Integer, index=True),
    Column("total", Numeric(10, 2)),
)
line = Table(
    "order_line",
    shop,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("order_id", Integer, index=True),
    Column("article", String(100)),
    Column("quantity", Integer),
)


def add_parser(commands: Any) -> None:
    """``python -m bench write``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "write", help="a business transaction with and without outbox"
    )
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--transactions", type=int, default=2_000, help="of each kind and writer")
    parser.add_argument("--writers", type=int, default=1, help="that work at the same time")
    parser.add_argument("--payload", type=int, default=300, metavar="BYTES")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of both kinds, and how many times as long the one with outbox takes."""
    with fresh_database(options.database) as url:
        installed(url)
        sqlite = make_url(url).get_backend_name() == "sqlite"
        engine = sqlite_engine(url) if sqlite else create_engine(url, pool_size=options.writers)
        try:
            _fill(engine)
            seconds = measure(engine, options)
        finally:
            engine.dispose()
    middle = {kind: median(found) * 1e6 for kind, found in seconds.items()}
    return {
        "bench": "write",
        "database": options.database,
        "version": server_of(options.database).version,
        "transactions": options.transactions,
        "writers": options.writers,
        "payload_bytes": options.payload,
        "p50_microseconds": {kind: round(value) for kind, value in middle.items()},
        "p99_microseconds": {kind: round(quantiles(found, n=100)[98] * 1e6) for kind, found in seconds.items()},
        "ratio": round(middle["with"] / middle["without"], 3),
        "machine": machine.facts(),
    }


def measure(engine: Engine, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each transaction; the first tenth is warm-up."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    outbox = Outbox(bind=engine)
    threads = [
        threading.Thread(target=_work, args=(engine, outbox, options, number, seconds))
        for number in range(options.writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def _work(
    engine: Engine, outbox: Outbox, options: argparse.Namespace, writer: int, seconds: dict[str, list[float]]
) -> None:
    payload = {"text": "x" * max(0, options.payload - 11)}
    turns = options.transactions * len(KINDS)
    own: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with engine.connect() as connection:
        for turn in range(turns):
            number = writer * turns + turn
            kind = KINDS[turn % len(KINDS)]
            start = time.perf_counter()
            with connection.begin():
                business(connection, number)
                if kind == "with":
                    outbox.add(
                        connection, Event(payload, type="order.created", aggregate=("order", number)), to="orders"
                    )
            own[kind].append(time.perf_counter() - start)
    for kind, found in own.items():
        seconds[kind].extend(found[len(found) // 10 :])


def business(connection: Connection, number: int) -> None:
    """Five ordinary statements."""
    who = number % CUSTOMERS
    connection.execute(select(customer.c.name).where(customer.c.id == who)).scalar_one()
    connection.execute(select(stock.c.level).where(stock.c.id == who)).scalar_one()
    connection.execute(insert(order).values(id=number, customer_id=who, total=19))
    lines = [{"id": number * 2 + n, "order_id": number, "article": f"article {n}", "quantity": 1} for n in range(2)]
    connection.execute(insert(line).values(lines))
    connection.execute(update(stock).where(stock.c.id == who).values(level=stock.c.level - 1))


def _fill(engine: Engine) -> None:
    shop.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(customer), [{"id": n, "name": f"customer {n}"} for n in range(CUSTOMERS)])
        connection.execute(insert(stock), [{"id": n, "level": 1_000_000} for n in range(CUSTOMERS)])


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = f"five statements and a commit on {summary['database']}, {summary['writers']} writer(s)"
    p50, p99 = summary["p50_microseconds"], summary["p99_microseconds"]
    lines = [f"{kind:8} outbox p50 {p50[kind]:>7,} us   p99 {p99[kind]:>7,} us" for kind in KINDS]
    return "\n".join([head, *lines, f"ratio {summary['ratio']:.2f}"])
