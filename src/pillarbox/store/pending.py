"""An async call that was made but not awaited: it wrote nothing, so the commit must not pass."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, MutableMapping
from types import TracebackType
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

from ..errors import NotAwaited

_PENDING: Final = "pillarbox.pending"

T = TypeVar("T")
Info = MutableMapping[Any, Any]


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that counts as pending, with the session or connection it is for, until it is awaited."""

    __slots__ = ("_coroutine", "_start", "_waiting", "what")

    def __init__(self, waiting: list[Pending[Any]], what: str, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.what = what
        self._waiting = waiting
        self._start = start
        self._coroutine: Coroutine[Any, Any, T] | None = None
        waiting.append(self)

    def _begun(self) -> Coroutine[Any, Any, T]:
        if self._coroutine is None:
            if self in self._waiting:
                self._waiting.remove(self)
            self._coroutine = self._start()
        return self._coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        return self._begun().throw(kind, value, traceback) if value is not None else self._begun().throw(kind)  # type: ignore[arg-type]

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()


def waiting_on(side: Session | Connection) -> list[Pending[Any]]:
    """The calls pending for a session or connection; for a session the first call arranges the check before commit."""
    info: Info = side.info
    if _PENDING not in info:
        info[_PENDING] = []
        if isinstance(side, Session):
            event.listen(side, "before_commit", _before_commit)
            event.listen(side, "after_soft_rollback", _after_rollback)
    found: list[Pending[Any]] = info[_PENDING]
    return found


def refusal(info: Info) -> NotAwaited | None:
    """The error for calls that are still pending."""
    waiting = info.get(_PENDING)
    if not waiting:
        return None
    names = ", ".join(dict.fromkeys(one.what for one in waiting))
    return NotAwaited(f"{len(waiting)} call(s) were not awaited, so nothing of them is written: {names}.")


def forget(info: Info) -> None:
    """A transaction that is rolled back takes its pending calls with it."""
    if _PENDING in info:
        info[_PENDING].clear()


def _before_commit(session: Session) -> None:
    found = None if session.in_nested_transaction() else refusal(session.info)
    if found is not None:
        raise found


def _after_rollback(session: Session, previous: Any) -> None:
    if previous.parent is None:
        forget(session.info)
