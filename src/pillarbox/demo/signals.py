"""However the demo is asked to end, it first removes what it made."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal unwind the stack; the exit code says which it was."""

    def end(number: int, _frame: FrameType | None) -> None:
        for each in before:  # an impatient second one must not interrupt the removal; its steps have deadlines
            signal.signal(each, signal.SIG_IGN)
        before.clear()  # nor the process on its way out
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
