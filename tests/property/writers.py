"""Applications that write events: several at once, some slowly, some in vain."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from tests.property.worlds import AGGREGATES, World, new_id

MADE = datetime(2026, 1, 1, tzinfo=UTC)
DESTINATIONS = ("orders", "audit", "mail")


class Withdrawn(Exception):
    """The application changed its mind: roll back."""


class Writer:
    """One application. ``withdrawn``: ids of events that were never committed."""

    def __init__(self, world: World, random: Random, keys: int, tell: Callable[[str], None]) -> None:
        self.withdrawn: set[str] = set()
        self.late = 0
        self.lost = 0
        self._world = world
        self._random = random
        self._keys = keys
        self._tell = tell

    def start(self, transactions: int) -> threading.Thread:
        """Write on a thread."""
        thread = threading.Thread(target=self._run, args=(transactions,), daemon=True)
        thread.start()
        return thread

    def _run(self, transactions: int) -> None:
        for _ in range(transactions):
            try:
                self._transaction()
            except Withdrawn:
                pass
            except Exception as error:  # noqa: BLE001 - its connection was cut: committed or not, the tables will tell
                self.lost += 1
                self._tell(f"a writer lost its transaction: {type(error).__name__}")
            time.sleep(self._random.random() * 0.03)

    def _transaction(self) -> None:
        dice = self._random
        keys = sorted(dice.sample(AGGREGATES[: self._keys], k=min(self._keys, dice.choice((1, 1, 1, 2)))))
        messages = [self._message(dice.choice([*keys, *keys, None])) for _ in range(dice.randint(1, 4))]
        messages.sort(key=lambda message: message.destination)
        more = [Destination("copies")] if dice.random() < 0.15 else []
        withdraws, slow = dice.random() < 0.15, dice.random() < 0.15
        with self._world.writing() as writing:
            writing.lock(keys)
            half = len(messages) // 2
            writing.add(messages[:half], more)
            time.sleep(dice.random() * (0.5 if slow else 0.02))
            writing.add(messages[half:], more)
            if slow:
                self.late += 1
            if withdraws:
                self.withdrawn |= {message.event_id for message in messages}
                raise Withdrawn

    def _message(self, key: str | None) -> Message:
        destination = self._random.choice(DESTINATIONS)
        return Message(new_id(), "t", 1, None, None, key, MADE, None, "text/plain", b"{}", destination, None)
