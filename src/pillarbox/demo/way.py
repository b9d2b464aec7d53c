"""One run of the demo: each way in its own world, with real processes that are killed while they work."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

from ..errors import DemoFailed
from ..store.engines import BEGIN_OPTION
from ..store.inspect import overview
from ..store.install import install
from .child import TASK_VARIABLE
from .ledger import Books, balance
from .options import DemoOptions, Way
from .places import World, engine_for, new_world
from .shop import Order, ShopTables
from .stock import Movement, StockTables
from .strikes import COUNT_VARIABLE, Child, Strike

RELAY = {"lease": 3.0, "broker_deadline": 1.4, "batch": 25}
"""A short lease, so that a killed relay's events return while one watches; small batches, so that kills hit within."""

PATIENCE = 20.0
"""Seconds without any change after which a way is taken to be at its end."""

DEADLINE = 120.0
"""Seconds for one way; a slower run has failed."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What the live view shows."""

    way: Way
    orders: int
    waiting: int | None
    sent: int | None
    applied: int
    kills: dict[str, int]


Plan = Mapping[str, list[Strike]]
"""For each role, where its runs are killed, one after the other."""


def run_way(
    way: Way, options: DemoOptions, show: Callable[[Glance], None], strikes: Plan | None = None
) -> tuple[Books, dict[str, int]]:
    """Run one way to its end and balance its books; returns them and how often each process was killed.

    ``strikes`` default to ``options.kills`` for each role, at the points where this way is most delicate.
    """
    with new_world(options) as world, _engines(world) as (shop, stock):
        ShopTables.metadata.create_all(shop)
        StockTables.metadata.create_all(stock)
        if way == "outbox":
            install(shop, parts=("outbox",))
            install(stock, parts=("inbox",))
        children = _children(way, options, world, strikes or _strikes(way, options))
        try:
            _drive(way, world, shop, stock, children, show)
        finally:
            for child in children.values():
                child.ask_to_end()
            for child in children.values():
                child.stop()
        books = _books(way, options, world, shop, stock)
        return books, {role: child.kills for role, child in children.items()}


@contextmanager
def _engines(world: World) -> Iterator[tuple[Engine, Engine]]:
    shop, stock = engine_for(world.shop_url), engine_for(world.stock_url)
    try:
        yield shop, stock
    finally:
        shop.dispose()
        stock.dispose()


def _children(way: Way, options: DemoOptions, world: World, strikes: Plan) -> dict[str, Child]:
    task = {
        "way": way,
        "orders": options.orders,
        "failing": options.failing,
        "seed": options.seed,
        "progress": str(world.folder / "progress"),
        "shop_url": world.shop_url,
        "stock_url": world.stock_url,
        "broker_url": world.broker_url,
        "destination": list(world.destination),
        "consumer": world.consumer,
        "source": world.source,
        "reading": world.reading,
        "relay": RELAY,
    }
    environment = {
        TASK_VARIABLE: json.dumps(task),
        COUNT_VARIABLE: str(world.folder / "deliveries"),
    }
    log = world.folder / "log"
    return {role: Child(role, environment, strikes[role], log) for role in strikes}


def _strikes(way: Way, options: DemoOptions) -> Plan:
    """Which fault points are hit, each early enough that the work goes on afterwards."""
    chance = random.Random(options.seed)
    gap = max(2, options.orders // (options.kills + 2) if options.kills else 0)

    def at(*points: str, unit: int = 1) -> list[Strike]:
        most = max(1, gap // unit)
        return [Strike(points[n % len(points)], chance.randint(max(1, most // 2), most)) for n in range(options.kills)]

    if way == "outbox":
        return {
            "shop": at("shop.before-commit", "shop.after-commit"),
            "relay": at("relay.after-confirm", "relay.after-claim", unit=50),
            "stock": at("consumer.after-commit"),
        }
    point = "shop.before-commit" if way == "inside" else "shop.after-commit"
    return {"shop": at(point), "stock": at("consumer.after-commit")}


def _drive(
    way: Way, world: World, shop: Engine, stock: Engine, children: dict[str, Child], show: Callable[[Glance], None]
) -> None:
    for child in children.values():
        child.start()
    end = time.monotonic() + DEADLINE
    quiet_since, before = time.monotonic(), None
    told: int | None = None  # events in the broker, once the shop has closed: what a naive consumer has to work off
    while True:
        for child in children.values():
            child.strike_if_stalled()
            _check_alive(child, world)
        glance = _look(way, shop, stock, children)
        show(glance)
        if glance != before:
            quiet_since, before = time.monotonic(), glance
        if children["shop"].finished == 0:
            if told is None and way != "outbox":
                told = len(set(world.published_ids()))
            if _at_rest(glance, told, time.monotonic() - quiet_since):
                return
        if time.monotonic() > end:
            raise DemoFailed(
                f"The {way} way did not finish in {DEADLINE:.0f} s: {glance}. Log: {_tail(world.folder / 'log')}"
            )
        time.sleep(0.05)


def _at_rest(glance: Glance, told: int | None, quiet: float) -> bool:
    """Everything that can arrive has arrived and nothing moves; or nothing has moved for so long that it never will."""
    if quiet > PATIENCE:
        return True
    to_apply = glance.orders if told is None else told
    return quiet > 0.5 and not glance.waiting and glance.applied >= to_apply


def _check_alive(child: Child, world: World) -> None:
    status = child.finished
    if status is not None and not (child.role == "shop" and status == 0):
        raise DemoFailed(f"The {child.role} process ended with status {status}. Log: {_tail(world.folder / 'log')}")


def _look(way: Way, shop: Engine, stock: Engine, children: dict[str, Child]) -> Glance:
    waiting = sent = None
    try:
        with _reading(shop) as connection:
            orders = connection.scalar(select(func.count()).select_from(Order)) or 0
            if way == "outbox":
                counts = overview(connection).counts
                sent = counts.get("SENT", 0)
                waiting = sum(counts.values()) - sent - counts.get("DEAD", 0)
        with _reading(stock) as connection:
            applied = connection.scalar(select(func.count(Movement.event_id.distinct()))) or 0
    except DBAPIError as error:
        raise DemoFailed(f"The demo's own database stopped answering: {error.orig!r}.") from error
    return Glance(way, orders, waiting, sent, applied, {role: child.kills for role, child in children.items()})


def _reading(engine: Engine) -> Connection:
    # On SQLite a reader must not wait for the write lock that a stalled process holds.
    return engine.connect().execution_options(**{BEGIN_OPTION: "DEFERRED"})


def _books(way: Way, options: DemoOptions, world: World, shop: Engine, stock: Engine) -> Books:
    with _reading(shop) as connection:
        orders = list(connection.scalars(select(Order.event_id)))
        events = sum(overview(connection).counts.values()) if way == "outbox" else 0
    with _reading(stock) as connection:
        applied = list(connection.scalars(select(Movement.event_id)))
    deliveries = (world.folder / "deliveries").stat().st_size
    return balance(orders, events, world.published_ids(), applied, deliveries)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else "(empty)"
