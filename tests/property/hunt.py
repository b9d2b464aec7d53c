"""``python -m tests.property.hunt memory 1 200``: rounds by hand. Prints what is wrong, with its seed and history."""

import logging
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from pillarbox.relay.ordered import duties, lowmark
from tests.property.rounds import Outcome, Round
from tests.property.worlds import MemoryWorld, SqlWorld
from tests.servers import fresh_database, read_settings

AT_ONCE = 6


def run(place: str, seeds: range, at_once: int = AT_ONCE) -> list[Outcome]:
    """Each seed once, several at a time, each in its own world."""
    if place == "memory":
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda seed: Round(MemoryWorld(), seed).run(), seeds))
    url = read_settings()[f"PILLARBOX_TEST_{place.upper()}"]
    from contextlib import ExitStack

    with ExitStack() as stack:
        free: SimpleQueue[SqlWorld] = SimpleQueue()
        for _ in range(at_once):
            world = SqlWorld(stack.enter_context(fresh_database(url)))
            stack.callback(world.close)
            free.put(world)

        def one(seed: int) -> Outcome:
            world = free.get()
            try:
                world.empty()
                return Round(world, seed).run()
            finally:
                free.put(world)

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(one, seeds))


def quick_duties() -> None:
    """In a round of a second, low marks and shares have to move, too."""
    duties.LOOK_SECONDS, duties.MARK_SECONDS, duties.SWEEP_SECONDS = 0.1, 0.02, 30.0  # type: ignore[misc]
    lowmark.SETTLE_SECONDS = 0.11  # type: ignore[misc]


def main(place: str, first: str, count: str) -> int:
    logging.disable(logging.CRITICAL)
    quick_duties()
    outcomes = run(place, range(int(first), int(first) + int(count)))
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
        if outcome.wrong:
            print(f"== seed {outcome.seed}", *outcome.wrong, *outcome.history, sep="\n   ")
    print("seconds:", sorted(round(one.seconds, 1) for one in outcomes))
    bad = sum(bool(outcome.wrong) for outcome in outcomes)
    print(f"{len(outcomes)} rounds, {bad} wrong, {sum(one.events for one in outcomes)} events,", end=" ")
    print(f"{sum(one.arrivals for one in outcomes)} arrivals; {dict(sorted(faults.items()))}")
    return bad


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
