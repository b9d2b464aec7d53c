"""One attempt at one event: mark, handlers and commit in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from .. import faultpoints
from ..errors import HandlerEndedTransaction, HandlerTimedOut
from ..store.failures import Fault, fault_of
from ..store.inbox import is_marked, mark, unmark
from .database import InboxDatabase
from .handlers import Handler
from .received import Received

Call = tuple[Handler, Received[Any]]


class Applied(NamedTuple):
    """Handlers ran; their writes and the mark are committed."""


class Duplicate(NamedTuple):
    """The inbox had this event already; nothing ran."""


class Failed(NamedTuple):
    """The event (or its handler) is at fault; everything was rolled back.

    ``final``: trying again could do something twice, because the handler's transaction ended too early on the server.
    """

    error: Exception
    final: bool = False


class DatabaseAway(NamedTuple):
    """The database is at fault, whatever the event. A commit whose answer was lost may stand: the mark will tell.

    ``in_handler``: the mark was written, so the database was there, and a handler lost it. ``busy``: it is there, but
    another copy of the event is at work and holds the mark.
    """

    error: Exception
    in_handler: bool = False
    busy: bool = False


Result = Applied | Duplicate | Failed | DatabaseAway


def attempt(database: InboxDatabase, consumer: str, event_id: str, calls: Sequence[Call]) -> Result:
    """Apply one event, once. A failing handler is a result; interrupts (KeyboardInterrupt, …) roll back and pass."""
    try:
        session = database.begin()
    except SQLAlchemyError as error:
        return away(database, error)
    try:
        return _in_transaction(database, session, consumer, event_id, calls)
    finally:
        database.end(session)


def _in_transaction(
    database: InboxDatabase, session: Session, consumer: str, event_id: str, calls: Sequence[Call]
) -> Result:
    try:
        # Executed at once and not left to a flush: a second copy of the event waits here, before its handlers run.
        first = mark(session.connection(), consumer, event_id)
    except SQLAlchemyError as error:
        # Before any handler ran nothing is the event's fault: a lost connection, a lock held by another copy, no table.
        return away(database, error)
    if not first:
        return Duplicate()
    try:
        with database.guard.watch(session):
            _run(database, session, calls)
            if database.guard.doubtful:
                check_mark(session, consumer, event_id)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is the event's failure
        if database.guard.ended_on_server:
            return _half_done(database, consumer, event_id, error)
        if database.lost and not isinstance(error, HandlerTimedOut):
            return away(database, error)._replace(in_handler=True)
        return Failed(error)
    faultpoints.reach("consumer.after-handler")
    return commit(database, session)


def _run(database: InboxDatabase, session: Session, calls: Sequence[Call]) -> None:
    for handler, event in calls:
        call(database, session, handler, (event,))


def call(database: InboxDatabase, session: Session, handler: Handler, events: Sequence[Received[Any]]) -> None:
    """Run one handler, and see to it that the transaction is still open afterwards."""
    database.call(handler, events, session)
    database.guard.check(handler.name)
    session.flush()  # a constraint that fails here fails this handler, and the next handler sees the rows


def check_mark(session: Session, consumer: str, event_id: str) -> None:
    """A handler swallowed the error of a statement: does the transaction still stand? Else raise (PB-043)."""
    undone = HandlerEndedTransaction(
        "A statement of a handler failed, and the database undid the whole transaction.",
        fix="Let the error pass, or run what may fail inside session.begin_nested().",
    )
    try:
        stands = is_marked(session.connection(), consumer, event_id)
    except DBAPIError as error:
        raise undone from error
    if not stands:
        raise undone


def commit(database: InboxDatabase, session: Session) -> Applied | Failed | DatabaseAway:
    """Commit mark and writes together."""
    lost_before = database.lost  # by a handler that swallowed the error
    try:
        session.commit()
    except (OperationalError, InterfaceError) as error:
        return Failed(error) if fault_of(error) is Fault.BUSY else away(database, error)
    except Exception as error:  # noqa: BLE001 - deferred constraints, and the user's own before_commit hooks
        return away(database, error)._replace(in_handler=lost_before) if database.lost else Failed(error)
    return Applied()


def away(database: InboxDatabase, error: Exception) -> DatabaseAway:
    """The connection is not trusted any more."""
    fault = fault_of(error)
    database.distrust(elsewhere=fault is Fault.READ_ONLY)
    return DatabaseAway(error, busy=fault is Fault.BUSY)


def _half_done(database: InboxDatabase, consumer: str, event_id: str, error: Exception) -> Result:
    """The mark may be committed without the whole effect: take it back, or the event would count as applied."""
    try:
        with database.engine.begin() as connection:
            unmark(connection, consumer, event_id)
    except SQLAlchemyError as failure:
        return away(database, failure)
    return Failed(error, final=True)
