"""What happens to a relay: it dies, or stands still, at a boundary of one of its calls.

A boundary is the moment before or after a call to the store, or before a message goes out. All threads of a relay share
one fate, as they share a process.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from pillarbox.errors import BrokerUnavailable, DatabaseUnavailable


class Fate:
    """``after`` boundaries, counted from now, something happens once: death, or sleep for some seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.slept = 0.0  # seconds that a clock which sleeps, too, has missed
        self._lock = threading.Lock()
        self._after = -1
        self._sleep = 0.0
        self._at: str | None = None
        self._awake_at = 0.0
        self._lost_answers = 0

    def die_after(self, boundaries: int) -> None:
        """SIGKILL."""
        with self._lock:
            self._after, self._sleep, self._at = boundaries, -1.0, None

    def sleep_after(self, boundaries: int, seconds: float, at: str | None = None) -> None:
        """SIGSTOP, and CONT. ``at``: only boundaries before calls of this name count."""
        with self._lock:
            self._after, self._sleep, self._at = boundaries, seconds, at

    def lose_answers(self, count: int) -> None:
        """The next ``count`` transactions commit, but their answers are lost; the connection works again then."""
        with self._lock:
            self._lost_answers = count

    def die(self) -> None:
        """At once."""
        self.dead = True

    @property
    def struck(self) -> bool:
        """True when what was decided has begun."""
        return self._after < 0

    def boundary(self, before: str = "") -> bool:
        """Returns False when the relay is dead; sleeps while it sleeps. ``before``: a call of the store."""
        with self._lock:
            if self._at in (None, before):
                if self._after == 0:
                    self._strike()
                self._after -= self._after >= 0
            awake_at = self._awake_at
        while (left := awake_at - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        return not self.dead

    def answer_is_lost(self) -> bool:
        """Once for each answer to be lost."""
        with self._lock:
            lost = self._lost_answers > 0
            self._lost_answers -= lost
            return lost

    def _strike(self) -> None:
        if self._sleep < 0:
            self.dead = True
        else:
            self._awake_at = time.monotonic() + self._sleep
            self.slept += self._sleep


class Sleeper:
    """A clock that stands still while its relay sleeps: that of a machine that was suspended."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic() - self._fate.slept


class FatefulStore:
    """A store whose calls are boundaries. A dead relay's calls do nothing, or their answers are not heard."""

    def __init__(self, store: Any, fate: Fate) -> None:
        self.relay_id: str = store.relay_id
        self._store = store
        self._fate = fate

    def close(self) -> None:
        self._store.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._fate.boundary(name):
                raise DatabaseUnavailable(f"{self._fate.name} is dead")
            result = method(*args, **kwargs)
            if not self._fate.boundary():
                raise DatabaseUnavailable(f"{self._fate.name} died before it heard the answer")
            if name in ("settle", "acquire", "move_due", "charge") and self._fate.answer_is_lost():
                raise DatabaseUnavailable("the answer was lost")
            return result

        return call


def dead_broker(fate: Fate) -> BrokerUnavailable:
    """What a dead relay's publisher raises: nothing of it gets out any more."""
    return BrokerUnavailable(f"{fate.name} is dead")
