"""Order, no loss, effect once: short rounds of writers, relays, failures and faults, each from a seed.

``PILLARBOX_PROPERTY_SEED=1234`` plays that round alone. The interleaving of threads is not in the seed: a round that
failed may need a few attempts. By hand: ``python -m tests.property.hunt mysql 1 200``.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pillarbox.relay.ordered import duties, lowmark
from tests.property.hunt import play
from tests.property.rounds import Outcome
from tests.property.worlds import MemoryWorld, SqlWorld
from tests.servers import fresh_database
from tests.services_fixtures import _need

AT_ONCE = 6
SERVERS = ("mysql", "postgres")


@pytest.fixture(autouse=True)
def quick_duties(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a round of a second, low marks and shares have to move, too. Logs of 100 rounds help nobody."""
    monkeypatch.setattr(duties, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(duties, "MARK_SECONDS", 0.02)
    monkeypatch.setattr(lowmark, "SETTLE_SECONDS", 0.11)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def worlds(request: pytest.FixtureRequest, server: str) -> Iterator[list[SqlWorld]]:
    url = _need(request, server).url
    with ExitStack() as stack:
        found: list[SqlWorld] = []
        for _ in range(AT_ONCE):
            found.append(SqlWorld(stack.enter_context(fresh_database(url))))
            stack.callback(found[-1].close)
        yield found


def seeds(first: int, count: int) -> Sequence[int]:
    """Or the one that was asked for."""
    chosen = os.environ.get("PILLARBOX_PROPERTY_SEED")
    return [int(chosen)] if chosen else range(first, first + count)


def report(outcomes: Sequence[Outcome]) -> None:
    """Print the counts; fail with the seeds and histories of what went wrong."""
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    events, arrivals = sum(one.events for one in outcomes), sum(one.arrivals for one in outcomes)
    print(
        f"{len(outcomes)} rounds, {events} events, {arrivals} arrivals, faults by kind:", dict(sorted(faults.items()))
    )
    failed = [one for one in outcomes if one.wrong]
    for one in failed[:3]:
        print(f"== seed {one.seed}", *one.wrong, *one.history, sep="\n   ")
    assert not failed, {one.seed: one.wrong for one in failed}


def test_in_memory() -> None:
    report(play([MemoryWorld() for _ in range(8)], seeds(1, 40)))


@pytest.mark.services
@pytest.mark.parametrize("server", SERVERS)
def test_on_a_database(worlds: list[SqlWorld]) -> None:
    """M04 to M08: 50 rounds on each."""
    report(play(worlds, seeds(1_000, 50)))


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.parametrize("server", SERVERS)
def test_with_processes_that_are_killed_and_stopped(worlds: list[SqlWorld], tmp_path: Path) -> None:
    """C084: SIGKILL at any moment, SIGSTOP beyond the lease."""
    report(play(worlds, seeds(2_000, 2), tmp_path))  # each process takes a second of CPU to start


@pytest.mark.services
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("server", SERVERS)
def test_50_rounds_with_processes(worlds: list[SqlWorld], tmp_path: Path) -> None:
    report(play(worlds, seeds(20_000, 50), tmp_path))


@pytest.mark.services
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("server", SERVERS)
def test_500_rounds_on_a_database(worlds: list[SqlWorld]) -> None:
    report(play(worlds, seeds(10_000, 500)))
