"""A consumer that runs in a thread of its own: for tests, and for applications that host their consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from .signals import DrainInterrupted
from .stats import ConsumerStats
from .stopping import StopFlag


class Running:
    """What ``consumer.start()`` returns. Leaving its ``with`` block drains and stops the consumer.

    An error that ended the consumer is raised again by :meth:`wait_until`, :meth:`stop` and the end of the block.
    """

    def __init__(
        self, name: str, run: Callable[[Callable[[], None]], None], stop: StopFlag, stats: ConsumerStats, drain: float
    ) -> None:
        self.stats = stats
        self._name = name
        self._stop = stop
        self._drain = drain
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, args=(run,), name=f"pillarbox-consumer-{name}", daemon=True)

    def begin(self, timeout: float) -> None:
        """Start the thread and wait until the source is open; raises what went wrong."""
        self._thread.start()
        until = time.monotonic() + timeout
        while not self._ready.wait(0.02):
            self._raise_if_ended()
            if time.monotonic() > until:
                self._stop.set()
                raise TimeoutError(f"The consumer {self._name!r} was not ready after {timeout:g} s.")

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def wait_until(self, condition: Callable[[], object], timeout: float = 10.0) -> None:
        """Return when ``condition()`` is true; TimeoutError after ``timeout`` seconds, with the counters so far."""
        until = time.monotonic() + timeout
        while not condition():
            self._raise_if_ended()
            if time.monotonic() > until:
                raise TimeoutError(f"The consumer {self._name!r} did not get there in {timeout:g} s: {self.stats}.")
            time.sleep(0.01)

    def stop(self) -> None:
        """Finish the current event, acknowledge, close. TimeoutError when that takes longer than the drain deadline."""
        self._ask()
        if self._thread.is_alive() or isinstance(self._error, DrainInterrupted):
            raise TimeoutError(f"A handler of the consumer {self._name!r} still runs {self._drain:g} s after the stop.")
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
            return
        self._ask()  # and no more: the block failed already, and its error matters more than ours

    def _ask(self) -> None:
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join(self._drain)

    def _main(self, run: Callable[[Callable[[], None]], None]) -> None:
        try:
            run(self._ready.set)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for this thread
            self._error = error

    def _raise_if_ended(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
