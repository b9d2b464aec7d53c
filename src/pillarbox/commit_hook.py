"""Run a function after the commit, and never without one: for what may be lost.

It cannot replace the outbox. Between the commit and the hook the process can die, and then nobody remembers that there
was something to do. What must follow the commit is an event: ``outbox.add(session, event)``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from .errors import ConfigError, WrongColour

log = logging.getLogger("pillarbox.after_commit")

Fallback = Literal["skip", "run"]
"""What becomes of a function when there is no transaction to wait for."""

AnySession = Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]

_STATE: Final = "pillarbox.after_commit"


def after_commit(session: AnySession, function: Callable[[], object], *, fallback: Fallback = "skip") -> bool:
    """Call ``function()`` once, after the session's outermost transaction has committed; True: it waits for that.

    It is not called when the transaction rolls back or is closed without a commit, nor when the savepoint
    (``begin_nested``) in which it was registered does. Functions run in the order in which they were registered, in the
    thread of the commit, before ``commit()`` returns: keep them short, and give their network calls a deadline. With an
    async session the function may be ``async def``; it is awaited within ``await session.commit()``.

    What it raises is logged (logger ``pillarbox.after_commit``) and goes no further: the commit stands, and its caller
    is not disturbed. In the function, use another session: this one has no transaction any more.

    Without a transaction (none begun, or one that belongs to somebody outside of the session: a session on a Connection
    that goes on after the session's commit) there is no outcome to wait for, and the function is not called; the log
    says so. ``fallback="run"`` calls it nevertheless, at once.

    **What it cannot do:** if the process dies between the commit and the call, or within it, the call is lost, and
    nothing will make up for it. Use it for what may be missed: clearing a cache, waking a worker, a counter. For what
    must happen, add an event to the outbox.

    Raises WrongColour (PB-027) for anything but a session, and for an async function where nothing could await it.

    >>> from pillarbox import sqlite_engine
    >>> with Session(sqlite_engine("sqlite://")) as session, session.begin():
    ...     after_commit(session, lambda: print("committed"))
    True
    committed
    """
    if fallback not in ("skip", "run"):
        raise ConfigError(f"fallback is 'skip' or 'run', not {fallback!r}.", fix="Leave it out, or pass 'run'.")
    sync, is_async = _sync_session(session)
    hook = _Hook(function, fallback, is_async)
    if inspect.iscoroutinefunction(function):
        _check_awaitable(hook, within_transaction=sync.in_transaction())
    if not sync.in_transaction():
        _without_transaction(hook, "the session has no transaction")
        return False
    transaction = sync.get_nested_transaction() or sync.get_transaction()
    assert transaction is not None
    _hooks_of(sync).waiting.append((hook, transaction))
    return True


class _Hook(NamedTuple):
    function: Callable[[], object]
    fallback: Fallback
    is_async: bool

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__qualname__", None) or repr(self.function))


class _Hooks:
    """What one session has registered, each with the transaction or savepoint in which it was."""

    def __init__(self) -> None:
        self.waiting: list[tuple[_Hook, SessionTransaction]] = []
        self.released: set[SessionTransaction] = set()
        self.committed: list[_Hook] = []


def _hooks_of(session: Session) -> _Hooks:
    found: _Hooks | None = session.info.get(_STATE)
    if found is None:
        found = session.info[_STATE] = _Hooks()
        # First of all listeners: one that raises must not make us miss a commit.
        event.listen(session, "after_commit", _on_commit, insert=True)
        event.listen(session, "after_transaction_end", _on_end)
    return found


def _on_commit(session: Session) -> None:
    """After each commit, a savepoint's release included. The transaction still has the session; it ends next."""
    hooks = _hooks_of(session)
    nested = session.get_nested_transaction()
    if nested is not None:
        hooks.released.add(nested)
        return
    hooks.committed = [hook for hook, _ in hooks.waiting]
    hooks.waiting.clear()
    if hooks.committed and _goes_on_outside(session):
        waiting, hooks.committed = hooks.committed, []
        for hook in waiting:
            _without_transaction(hook, "the session's commit was not the last word: its connection is in a transaction")


def _on_end(session: Session, transaction: SessionTransaction) -> None:
    """Whatever ended it. A savepoint that was not released takes what was registered within it along."""
    hooks = _hooks_of(session)
    if transaction.nested:
        if transaction in hooks.released:
            hooks.released.remove(transaction)
        else:
            hooks.waiting = [one for one in hooks.waiting if not _is_within(one[1], transaction)]
    elif transaction.parent is None:
        ready, hooks.committed = hooks.committed, []
        hooks.waiting.clear()
        hooks.released.clear()
        for hook in ready:
            _run(hook, "after the commit")


def _is_within(inner: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer


def _goes_on_outside(session: Session) -> bool:
    """A session on a Connection that somebody else has begun: what it "committed" can still be rolled back."""
    binds = getattr(session, "binds", None) or getattr(session, "_Session__binds", {})
    return any(isinstance(one, Connection) and one.in_transaction() for one in (session.bind, *binds.values()))


def _without_transaction(hook: _Hook, why: str) -> None:
    if hook.fallback == "run":
        _run(hook, "without a transaction")
        return
    log.warning("%s is not called: %s. Pass fallback='run' to call it nevertheless.", hook.name, why)


def _run(hook: _Hook, when: str) -> None:
    try:
        answer = hook.function()
        if inspect.isawaitable(answer):
            _finish(hook, answer)
    except Exception:
        log.exception("%s failed, called %s", hook.name, when)


def _finish(hook: _Hook, answer: Any) -> None:
    if hook.is_async:
        await_only(answer)
        return
    if inspect.iscoroutine(answer):
        answer.close()
    raise TypeError("It returned an awaitable, which nobody awaits here; use an AsyncSession.")


def _check_awaitable(hook: _Hook, *, within_transaction: bool) -> None:
    if not hook.is_async:
        raise WrongColour(
            f"{hook.name} is async, the session is not: nobody would await it.", fix="Register a plain function."
        )
    if hook.fallback == "run" and not within_transaction:
        raise WrongColour(
            f"{hook.name} is async, and without a transaction there is no commit to await it in.",
            fix="Await it yourself: `if not session.in_transaction(): await …`.",
        )


def _sync_session(session: AnySession) -> tuple[Session, bool]:
    if isinstance(session, (scoped_session, async_scoped_session)):
        session = session()
    if isinstance(session, AsyncSession):
        return session.sync_session, True
    if isinstance(session, Session):
        return session, False
    raise WrongColour(
        f"after_commit takes a Session or AsyncSession, got {type(session).__name__}.",
        fix="Pass the session: a connection does not tell when it has committed.",
    )


__all__ = ["after_commit"]
