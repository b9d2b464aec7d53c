"""From what the caller hands over, a session or a connection, to the connection that its transaction runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from sqlalchemy import URL, Connection, Engine, insert, make_url
from sqlalchemy.exc import (
    DBAPIError,
    InvalidRequestError,
    PendingRollbackError,
    ResourceClosedError,
    UnboundExecutionError,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from ..errors import DatabaseUnavailable, ForeignEngine, NoTransaction, SessionClosed, WrongColour
from .failures import Fault, connect_error, fault_of, shown
from .schema import outbox_event

Target = Session | scoped_session[Any] | Connection
"""What the synchronous faces take."""

AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection
"""What the asynchronous faces take."""

R = TypeVar("R")

_USED_BY_TWO: Final = "isce"
"""SQLAlchemy's code for a session that two tasks or threads use at once: its own message says so."""


class Face(NamedTuple):
    """The public class that was called, and its twin of the other colour: for messages."""

    name: str
    twin: str


def sync_engine(bind: Engine | AsyncEngine | None) -> Engine | None:
    """The engine of a ``bind`` argument."""
    if bind is None or isinstance(bind, Engine):
        return bind
    if isinstance(bind, AsyncEngine):
        return bind.sync_engine
    raise ForeignEngine(
        f"bind takes an Engine, got {type(bind).__name__}.", fix="Pass the engine that your sessions use."
    )


def connection_of(target: Target, bind: Engine | None, face: Face) -> Connection:
    """The open connection of the caller's transaction, begun if it was not.

    Raises WrongColour (PB-027), SessionClosed (PB-022), ForeignEngine (PB-021), NoTransaction (PB-020, for an Engine),
    DatabaseUnavailable (PB-004) when the connection was lost earlier in the transaction.
    """
    if isinstance(target, scoped_session):
        target = target()
    if isinstance(target, Session):
        connection = _of_session(target, bind)
    elif isinstance(target, Connection):
        connection = target
    else:
        _refuse(target, face, "a Session or Connection")
    if connection.closed:
        raise SessionClosed("The connection is closed.")
    if connection.invalidated:
        raise DatabaseUnavailable(
            "The connection to the database was lost in this transaction; what it wrote is gone.",
            fix="Roll back and run the transaction again.",
        )
    if bind is not None and not same_engine(connection.engine, bind):
        raise ForeignEngine(
            f"The outbox is bound to {shown(bind.url)}, but the connection belongs to {shown(connection.engine.url)}."
        )
    return connection


def same_engine(one: Engine, other: Engine) -> bool:
    """``engine.execution_options(…)`` makes copies that share pool and dialect: these are the same."""
    return one.dialect is other.dialect


# Sessions ---------------------------------------------------------------------------------------------------------


def _of_session(session: Session, bind: Engine | None) -> Connection:
    try:
        return session.connection(bind_arguments=_bind_arguments(session, bind))
    except (PendingRollbackError, UnboundExecutionError):
        raise
    except DBAPIError as error:
        if fault_of(error) in (Fault.BUSY, Fault.BUG):
            raise
        raise connect_error(error, _url(session, bind)) from error
    except (InvalidRequestError, ResourceClosedError) as error:
        if error.code == _USED_BY_TWO:
            raise
        raise SessionClosed(f"The session takes no more statements: {error}.") from error


def _bind_arguments(session: Session, bind: Engine | None) -> dict[str, Any]:
    """Which of the session's engines to write to: it must be one that the session itself uses."""
    own = _engines_of(session)
    if bind is not None:
        for candidate in own:
            if same_engine(candidate.engine, bind):
                return {"bind": candidate}
        raise ForeignEngine(
            f"The outbox is bound to {shown(bind.url)}, which is none of the session's engines: {_urls(own)}."
        )
    if own and not all(same_engine(candidate.engine, own[0].engine) for candidate in own):
        raise ForeignEngine(
            f"The session has several engines ({_urls(own)}); the event must go where the business row goes.",
            fix="Say which: Outbox(bind=engine).",
        )
    return {"bind": own[0]} if own else {}


def _engines_of(session: Session) -> list[Engine | Connection]:
    """The session's bind, the values of ``binds``, and what an own ``get_bind`` gives for our table."""
    binds = getattr(session, "binds", None) or getattr(session, "_Session__binds", {})
    found = [one for one in (session.bind, *binds.values()) if one is not None]
    if type(session).get_bind is not Session.get_bind:
        found.append(session.get_bind(clause=insert(outbox_event)))
    return found


def _url(session: Session, bind: Engine | None) -> URL:
    found = bind or next(iter(_engines_of(session)), None)
    return found.engine.url if found is not None else make_url("sqlite://")


def _urls(engines: list[Engine | Connection]) -> str:
    return ", ".join(sorted({shown(one.engine.url) for one in engines})) or "none"


# Colours ----------------------------------------------------------------------------------------------------------


class AsyncSide(NamedTuple):
    """An async session or connection, as its sync self and the way to run a function with it."""

    sync: Session | Connection
    run: Callable[[Callable[[Any], R]], Any]


def async_side(target: AsyncTarget, face: Face) -> AsyncSide:
    """Take an async session or connection apart. Raises WrongColour (PB-027) and SessionClosed (PB-022)."""
    if isinstance(target, async_scoped_session):
        target = target()
    if isinstance(target, AsyncSession):
        return AsyncSide(target.sync_session, target.run_sync)
    if isinstance(target, AsyncConnection):
        if target.sync_connection is None or target.closed:
            raise SessionClosed("The connection is closed, or was not opened yet.")
        return AsyncSide(target.sync_connection, target.run_sync)
    return _refuse(target, face, "an AsyncSession or AsyncConnection")


def _refuse(target: object, face: Face, wanted: str) -> NoReturn:
    kind = type(target).__name__
    if isinstance(target, (Engine, AsyncEngine)):
        raise NoTransaction(
            f"{face.name} got an {kind}, which has no transaction.", fix="Pass the session or connection."
        )
    if isinstance(target, (Session, scoped_session, Connection, AsyncSession, async_scoped_session, AsyncConnection)):
        raise WrongColour(f"{face.name} takes {wanted}, got {kind}.", fix=f"Use {face.twin} with this {kind}.")
    raise WrongColour(f"{face.name} takes {wanted} first, got {kind}.", fix="Pass the session, then the event.")
