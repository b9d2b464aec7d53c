"""Replays come in batches at a limited rate, and walk once through the dead letters."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from pillarbox import Event, Outbox, install
from pillarbox.ops.replay import BATCH, DeadFilter, Order, matching, replay
from pillarbox.ports import Parked, Settlement
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.store.transactions import Transactions


class StillClock:
    """Moves only when somebody waits on it."""

    def __init__(self) -> None:
        self.seconds, self.waits = 0.0, list[float]()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds


Graveyard = tuple[Transactions, Callable[[], None]]


@pytest.fixture
def graveyard(tmp_path: Path) -> Iterator[Graveyard]:
    """500 dead letters, and a function that lets everything that was replayed die again."""
    engine = relay_engine(f"sqlite:///{tmp_path / 'a.db'}")
    install(engine)
    outbox = Outbox(bind=engine)
    store = RowLeaseStore(engine, relay_id="r", lease=60)

    def die() -> None:
        while (claim := store.claim(1000)).deliveries:
            dead = [Parked(d.key, d.lane, "DEAD", None, 1, "no") for d in claim.deliveries]
            store.settle(Settlement(claim.token, parked=dead))

    with engine.begin() as connection:
        for n in range(500):
            outbox.add(connection, Event({"n": n}, type="a" if n % 2 else "b", aggregate=("x", n)), to="t")
    die()
    yield Transactions(engine), die
    engine.dispose()


def test_a_rate_of_100_takes_5_seconds_for_500(graveyard: Graveyard) -> None:
    clock = StillClock()
    order = Order(DeadFilter(), "me", "", rate=100)
    assert list(replay(graveyard[0], order, clock=clock, pause=clock.wait)) == [100, 100, 100, 100, 100]
    assert clock.seconds == pytest.approx(5)


def test_without_a_rate_nothing_waits_and_batches_are_bounded(graveyard: Graveyard) -> None:
    clock = StillClock()
    moved = list(replay(graveyard[0], Order(DeadFilter(), "me", "", rate=0), clock=clock, pause=clock.wait))
    assert (sum(moved), max(moved), clock.waits) == (500, BATCH, [])


def test_letters_that_die_again_meanwhile_are_not_taken_twice(graveyard: Graveyard) -> None:
    tables, die = graveyard
    moved = 0
    for batch in replay(tables, Order(DeadFilter(event_type="a"), "me", "", rate=0)):
        moved += batch
        die()
    assert moved == 250
    twice = "SELECT 1 FROM outbox_replay GROUP BY id HAVING COUNT(*) > 1"
    assert tables.read(lambda c: c.execute(text(twice)).all()) == []
    assert tables.read(lambda c: matching(c, DeadFilter())) == 500


def test_ending_it_early_leaves_the_rest_dead(graveyard: Graveyard) -> None:
    tables, _ = graveyard
    batches = replay(tables, Order(DeadFilter(), "me", "", rate=0))
    assert next(batches) == BATCH
    batches.close()
    assert tables.read(lambda c: matching(c, DeadFilter())) == 500 - BATCH


def test_a_rate_below_one_still_moves_one_at_a_time(graveyard: Graveyard) -> None:
    clock = StillClock()
    batches = replay(graveyard[0], Order(DeadFilter(), "me", "", rate=0.5), clock=clock, pause=clock.wait)
    assert [next(batches) for _ in range(3)] == [1, 1, 1]
    assert clock.seconds == pytest.approx(4)
