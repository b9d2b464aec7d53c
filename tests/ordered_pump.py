"""A caller of ``publish_in_order`` as a relay is one: what was not confirmed is sent again, first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Publisher, Withheld
from pillarbox.testing.conformance.publisher_world import Arrived, message


def copies(arrived: Sequence[Arrived]) -> int:
    """How many of them are second copies of an event."""
    return len(arrived) - len({one.headers["id"] for one in arrived})


class OrderedPump:
    """Publishes numbered messages of a few keys, batch after batch, on its own thread until it is stopped.

    Leaving the block sends until all is confirmed. ``outcomes`` are those of all calls, ``sent`` all messages.
    """

    def __init__(self, publisher: Publisher, there: Destination, *, size: int = 200, keys: int = 5) -> None:
        self.sent: list[Message] = []
        self.outcomes: Counter[str] = Counter()
        self.odd: list[Outcome] = []  # neither confirmed nor withheld
        self.longest = 0.0
        self._publisher, self._there, self._size, self._keys = publisher, there, size, keys
        self._left: list[Message] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> OrderedPump:
        self._thread.start()
        self.wait_for_confirms(3 * self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert not self._left, f"{len(self._left)} are not confirmed in time: {self.odd[-1:]}"

    def wait_for_confirms(self, more: int, seconds: float = 60) -> None:
        """Wait until so many more are confirmed."""
        target = self.outcomes["Confirmed"] + more
        deadline = time.monotonic() + seconds
        while self.outcomes["Confirmed"] < target:
            assert time.monotonic() < deadline, f"{self.outcomes} {self.odd[-1:]}"
            time.sleep(0.01)

    def wait_for_trouble(self, seconds: float = 60, *, make: Callable[[], None] = lambda: None) -> None:
        """Wait until something that is sent now is not confirmed; ``make`` is called until then."""
        seen, deadline = len(self.odd), time.monotonic() + seconds
        while len(self.odd) == seen:
            assert time.monotonic() < deadline, "all is well"
            make()
            time.sleep(0.03)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._left += self._fresh(self._size - len(self._left))
            self._publish()
        deadline = time.monotonic() + 60
        while self._left and time.monotonic() < deadline:
            self._publish()

    def _publish(self) -> None:
        started = time.monotonic()
        outcomes = self._publisher.publish_in_order(self._left)
        self.longest = max(self.longest, time.monotonic() - started)
        self._left = [
            one for one, answer in zip(self._left, outcomes, strict=True) if not isinstance(answer, Confirmed)
        ]
        self.odd += [one for one in outcomes if not isinstance(one, (Confirmed, Withheld))]
        self.outcomes.update(type(outcome).__name__ for outcome in outcomes)
        if self._left:
            time.sleep(0.05)  # a relay has a breaker

    def _fresh(self, count: int) -> list[Message]:
        start = len(self.sent)
        made = [message(self._there, key=f"k-{n % self._keys}", payload=b"%d" % n) for n in range(start, start + count)]
        self.sent += made
        return made
