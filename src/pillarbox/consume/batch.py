"""One attempt at many events: their marks in one statement, their handlers, one commit."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from .. import faultpoints
from ..errors import HandlerTimedOut
from ..store.inbox import mark_many, unmark
from .attempt import Applied, DatabaseAway, Duplicate, Failed, Result, away, call, check_mark, commit
from .database import InboxDatabase
from .incoming import Prepared
from .runs import runs_of

Results = dict[int, Result]
"""By place in the batch. An event that is missing was not tried: it has to be tried alone."""


def attempt_batch(
    database: InboxDatabase, consumer: str, events: Sequence[Prepared]
) -> Results | Failed | DatabaseAway:
    """Apply many events in one transaction, each once; all of them or none.

    Failed: something in there is at fault, and everything was rolled back. An event that is there twice counts as a
    duplicate the second time. Interrupts roll back and pass.
    """
    try:
        session = database.begin()
    except SQLAlchemyError as error:
        return away(database, error)
    try:
        return _in_transaction(database, session, consumer, events)
    finally:
        database.end(session)


def _in_transaction(
    database: InboxDatabase, session: Session, consumer: str, events: Sequence[Prepared]
) -> Results | Failed | DatabaseAway:
    try:
        new = mark_many(session.connection(), consumer, [event.event_id for event in events])
    except SQLAlchemyError as error:
        return away(database, error)
    results: Results = {}
    fresh: list[int] = []
    for place, event in enumerate(events):
        if event.event_id in new:
            new.discard(event.event_id)
            fresh.append(place)
        else:
            results[place] = Duplicate()
    if not fresh:
        return results
    steps, done = _steps(events, fresh), 0
    try:
        with database.guard.watch(session):
            for step in steps:
                _run(database, session, [events[place] for place in step])
                done += 1
            if database.guard.doubtful:
                check_mark(session, consumer, events[fresh[0]].event_id)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        if database.guard.ended_on_server:
            return _half_done(database, consumer, events, results, steps, done, error)
        if database.lost and not isinstance(error, HandlerTimedOut):
            return away(database, error)._replace(in_handler=True)
        return Failed(error)
    faultpoints.reach("consumer.after-handler")
    committed = commit(database, session)
    if not isinstance(committed, Applied):
        return committed
    return results | dict.fromkeys(fresh, committed)


def _steps(events: Sequence[Prepared], places: Sequence[int]) -> list[list[int]]:
    """What is done one after the other: event by event, or in runs where a handler takes many."""
    if not any(handler.many for place in places for handler, _ in events[place].calls):
        return [[place] for place in places]
    return runs_of(places, kind=lambda place: events[place].event_type, key=lambda place: events[place].lane)


def _run(database: InboxDatabase, session: Session, events: Sequence[Prepared]) -> None:
    """All handlers of events of one type: each event with its handlers, or each handler with its events."""
    handlers = [handler for handler, _ in events[0].calls]
    if not any(handler.many for handler in handlers):
        for event in events:
            for handler, received in event.calls:
                call(database, session, handler, (received,))
        return
    for number, handler in enumerate(handlers):
        all_of_them = [event.calls[number][1] for event in events]
        for given in [all_of_them] if handler.many else [[one] for one in all_of_them]:
            call(database, session, handler, given)


def _half_done(
    database: InboxDatabase,
    consumer: str,
    events: Sequence[Prepared],
    results: Results,
    steps: Sequence[Sequence[int]],
    done: int,
    error: Exception,
) -> Results | DatabaseAway:
    """A handler ended the transaction on the server: what was done before it stands, mark and effect.

    Its own events may be half done, and are not tried again; those behind it were not tried.
    """
    try:
        with database.engine.begin() as connection:
            for step in steps[done:]:
                for place in step:
                    unmark(connection, consumer, events[place].event_id)
    except SQLAlchemyError as failure:
        return away(database, failure)
    before = {place: Applied() for step in steps[:done] for place in step}
    return results | before | {place: Failed(error, final=True) for place in steps[done]}
