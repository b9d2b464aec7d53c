"""``python -m tests.property.hunt mysql 1 200``: rounds by hand. Prints what is wrong, with its seed and history."""

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import cast

from pillarbox.relay.ordered import duties, lowmark
from tests.property.broker import Broker
from tests.property.files import FileBroker
from tests.property.processes import Child
from tests.property.rounds import Outcome, Round
from tests.property.threads import Living
from tests.property.worlds import MemoryWorld, SqlWorld, World
from tests.servers import fresh_database, read_settings

AT_ONCE = 6


def play(worlds: Sequence[World], seeds: Sequence[int], folder: Path | None = None) -> list[Outcome]:
    """A round for each seed, as many at a time as there are worlds. With a ``folder``, relays are processes."""
    free: SimpleQueue[World] = SimpleQueue()
    for world in worlds:
        free.put(world)

    def one(seed: int) -> Outcome:
        world = free.get()
        try:
            world.empty()
            if folder is None:
                return Round(world, seed, Broker(), Living).run()
            with closing(FileBroker(folder / f"round-{seed}.broker")) as broker:
                return Round(world, seed, cast("Broker", broker), Child).run()
        finally:
            free.put(world)

    with ThreadPoolExecutor(len(worlds)) as pool:
        return list(pool.map(one, seeds))


def quick_duties() -> None:
    """In a round of a second, low marks and shares have to move, too."""
    duties.LOOK_SECONDS, duties.MARK_SECONDS = 0.1, 0.02  # type: ignore[misc]
    lowmark.SETTLE_SECONDS = 0.11  # type: ignore[misc]


def main(place: str, first: str, count: str, processes: str = "") -> int:
    """Returns how many rounds went wrong. ``processes``: anything, for relays that are processes."""
    logging.disable(logging.CRITICAL)
    quick_duties()
    with ExitStack() as stack:
        worlds: list[World] = []
        for _ in range(AT_ONCE):
            if place == "memory":
                worlds.append(MemoryWorld())
            else:
                url = stack.enter_context(fresh_database(read_settings()[f"PILLARBOX_TEST_{place.upper()}"]))
                worlds.append(SqlWorld(url))
            stack.callback(worlds[-1].close)
        folder = Path(stack.enter_context(TemporaryDirectory())) if processes else None
        outcomes = play(worlds, range(int(first), int(first) + int(count)), folder)
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
        if outcome.wrong:
            print(f"== seed {outcome.seed}", *outcome.wrong, *outcome.history, sep="\n   ")
    bad = sum(bool(outcome.wrong) for outcome in outcomes)
    print("seconds:", sorted(round(one.seconds, 1) for one in outcomes))
    print(f"{len(outcomes)} rounds, {bad} wrong, {sum(one.events for one in outcomes)} events,", end=" ")
    print(f"{sum(one.arrivals for one in outcomes)} arrivals; {dict(sorted(faults.items()))}")
    return bad


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
