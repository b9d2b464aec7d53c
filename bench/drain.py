"""The rounds: product and raw loop take turns, each on tables and a destination of its own, freshly filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import create_engine, func, select

from bench.counters import Counters, difference, own_account, per_event
from bench.fill import AGGREGATES, fill
from bench.job import SIDES, Figures, Job, Ownership, Side
from bench.places import fresh_broker, fresh_database, installed, wait_for_arrival
from bench.worker import measure
from pillarbox.store.schema import outbox_parked, outbox_ready, outbox_receipt

WARM_UP_EVENTS = 2000

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Task:
    """What is compared, and how often."""

    database: str
    broker: str
    events: int
    batch: int
    rounds: int
    payload_bytes: int = 300
    ownership: Ownership = "partition"
    sides: tuple[Side, ...] = SIDES
    keys: int = AGGREGATES
    one_at_a_time: bool = False  # the raw loop has one message in flight


Rounds = dict[Side, list[Figures]]


def compare(task: Task, tell: Tell) -> Rounds:
    """The figures of each side, one per round. An unmeasured small round comes first: brokers and caches are cold."""
    for side in task.sides:
        tell(f"warm-up, {side}")
        run_once(replace(task, events=min(WARM_UP_EVENTS, task.events)), side)
    rounds: Rounds = {side: [] for side in task.sides}
    for number, side in turns(task.rounds, task.sides):
        figures = run_once(task, side)
        rounds[side].append(figures)
        tell(f"round {number}, {side}: {figures.rate:,.0f} events/s")
    return rounds


def turns(rounds: int, sides: tuple[Side, ...] = SIDES) -> Iterator[tuple[int, Side]]:
    """Who runs when. Whoever was second begins the next round, so that neither always follows the other."""
    for number in range(1, rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            yield number, side


def run_once(task: Task, side: Side, *, profile: bool = False) -> Figures:
    """Fill, drain, verify. RuntimeError if anything but N receipts and N messages came out."""
    with fresh_database(task.database) as url, fresh_broker(task.broker) as broker:
        prepare(url, task, broker.destination)
        with counted(url) as (own, work):
            job = Job(
                side, task.ownership, own, broker.url, broker.destination, task.batch, profile, task.one_at_a_time
            )
            figures = measure(job)
        figures = replace(figures, work=per_event(work, task.events))
        verify(url, task.events)
        wait_for_arrival(broker, task.events)
    if figures.events != task.events:
        raise RuntimeError(f"the {side} side settled {figures.events} events, not {task.events}")
    return figures


@contextmanager
def counted(url: str) -> Iterator[tuple[str, dict[str, int]]]:
    """The URL to use, and a dict that holds, afterwards, what the database counted in between."""
    work: dict[str, int] = {}
    with own_account(url) as own:
        counters = Counters(url, own)
        before = counters.read()
        yield own, work
        work.update(difference(counters.read(), before))
        counters.close()


def prepare(url: str, task: Task, destination: str) -> None:
    """Tables as `pillarbox init` makes them, and the events."""
    installed(url)
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            fill(connection, task.events, destination, task.payload_bytes, task.keys)
    finally:
        engine.dispose()


def verify(url: str, events: int) -> None:
    """One receipt per event, and no work left."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            counts = [
                connection.scalar(select(func.count()).select_from(table))
                for table in (outbox_receipt, outbox_ready, outbox_parked)
            ]
    finally:
        engine.dispose()
    if counts != [events, 0, 0]:
        raise RuntimeError(f"{events} events gave {counts[0]} receipts; {counts[1]} are ready and {counts[2]} parked")
