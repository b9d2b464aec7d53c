"""How a running consumer is told to stop, or to pause."""

from __future__ import annotations


class StopFlag:
    """A plain flag. Not a threading.Event: setting one in a signal handler can deadlock with what it interrupted."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked = False

    def set(self) -> None:
        """Ask to stop. Safe from any thread and from a signal handler."""
        self._asked = True

    def is_set(self) -> bool:
        """True once somebody asked."""
        return self._asked


class PauseFlag(StopFlag):
    """The same, and it can be taken back."""

    __slots__ = ()

    def clear(self) -> None:
        """Go on."""
        self._asked = False
