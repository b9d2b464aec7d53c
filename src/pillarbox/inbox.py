"""Once per consumer and event, or business key: the mark that commits together with the handler's own writes."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from .errors import InvalidEvent, NoTransaction, SavepointTrap
from .event.limits import check_name
from .store.caller import AsyncTarget, Face, Target, async_side, connection_of, sync_engine
from .store.drivers import begins_by_itself, is_autocommit
from .store.inbox import mark, mark_many
from .store.pending import Pending, waiting_on

MAX_CONSUMER: Final = 100
MAX_EVENT_ID: Final = 100

KEY_MARK: Final = "\x1f"
"""Before a business key in the table: no event id begins with this character (ASCII's unit separator), so that a key
and an id are never the same mark."""

AnyId = TypeVar("AnyId", bound=UUID | str)

_SYNC: Final = Face("Inbox", "AsyncInbox")
_ASYNC: Final = Face("AsyncInbox", "Inbox")


class Inbox:
    """What the consumer called ``consumer`` has applied. Its name is its identity: another name applies all again.

    >>> from sqlalchemy.orm import Session
    >>> from pillarbox.store.engines import sqlite_engine
    >>> from pillarbox.store.install import install
    >>> engine = sqlite_engine("sqlite://")
    >>> done = install(engine, ["inbox"])
    >>> inbox = Inbox("stock")
    >>> with Session(engine) as session, session.begin():
    ...     inbox.once(session, "e-1"), inbox.once(session, "e-1")
    (True, False)
    """

    def __init__(self, consumer: str, bind: Engine | AsyncEngine | None = None) -> None:
        self.consumer = check_name("consumer name", consumer, most=MAX_CONSUMER)
        self._bind = sync_engine(bind)

    def once(self, session: Target, event_id: UUID | str) -> bool:
        """True: the event is new to this consumer, and marked in the session's transaction. False: leave it alone.

        Call it first in the transaction; after a rollback the mark is gone with the rest. If another transaction holds
        the same mark, it waits for its outcome. Raises NoTransaction (PB-020), ForeignEngine (PB-021), SessionClosed
        (PB-022), SavepointTrap (PB-024), WrongColour (PB-027).
        """
        return mark(self._connection(session), self.consumer, _text(event_id))

    def once_by_key(self, session: Target, key: str) -> bool:
        """The same by a key of the business ("invoice 17 of 2026"), where one fact may come under several event ids.

        ``key`` has at most 99 characters. Keys and event ids are two name spaces: a key that reads like an id is
        another mark. An event that is told apart by its key needs no ``once`` beside it. Raises like :meth:`once`.
        """
        text = check_name("business key", key, most=MAX_EVENT_ID - len(KEY_MARK))
        return mark(self._connection(session), self.consumer, KEY_MARK + text)

    def once_each(self, session: Target, event_ids: Iterable[AnyId]) -> list[AnyId]:
        """Mark many events with one statement for each 400; returns those that are new, as given and in their order.

        An id that is given twice is new once. If another transaction holds one of the marks, it waits for its outcome.
        Raises like :meth:`once`.

        >>> from pillarbox.store.engines import sqlite_engine
        >>> from pillarbox.store.install import install
        >>> engine = sqlite_engine("sqlite://")
        >>> done = install(engine, ["inbox"])
        >>> with engine.begin() as connection:
        ...     Inbox("stock").once(connection, "b"), Inbox("stock").once_each(connection, ["c", "b", "a", "c"])
        (True, ['c', 'a'])
        """
        given: dict[str, AnyId] = {}
        for one in event_ids:
            given.setdefault(_text(one), one)
        new = mark_many(self._connection(session), self.consumer, given)
        return [one for text, one in given.items() if text in new]

    def _connection(self, session: Target) -> Connection:
        """The transaction's connection. What stands in the session but is not flushed yet stays there: the mark comes
        first."""
        connection = connection_of(session, self._bind, _SYNC)
        if is_autocommit(connection):
            raise NoTransaction(
                "The connection is in AUTOCOMMIT: the mark would be committed before the handler's writes."
            )
        sqlite = connection.dialect.name == "sqlite"
        if sqlite and connection.in_nested_transaction() and begins_by_itself(connection):
            raise SavepointTrap("The release of this SAVEPOINT may commit the mark before the handler's other writes.")
        return connection


class AsyncInbox:
    """The same for AsyncSession, async_scoped_session and AsyncConnection: ``await inbox.once(session, event_id)``.

    >>> AsyncInbox("stock").once.__name__
    'once'
    """

    def __init__(self, consumer: str, bind: Engine | AsyncEngine | None = None) -> None:
        self._sync = Inbox(consumer, bind)
        self.consumer = self._sync.consumer

    def once(self, session: AsyncTarget, event_id: UUID | str) -> Coroutine[Any, Any, bool]:
        """See :meth:`Inbox.once`. Await it: un-awaited it is always true, so the commit is refused (PB-026)."""
        side = async_side(session, _ASYNC)
        return Pending(waiting_on(side.sync), "once()", lambda: side.run(lambda sync: self._sync.once(sync, event_id)))

    def once_by_key(self, session: AsyncTarget, key: str) -> Coroutine[Any, Any, bool]:
        """See :meth:`Inbox.once_by_key`. Await it, like :meth:`once`."""
        side = async_side(session, _ASYNC)
        return Pending(
            waiting_on(side.sync), "once_by_key()", lambda: side.run(lambda sync: self._sync.once_by_key(sync, key))
        )

    def once_each(self, session: AsyncTarget, event_ids: Iterable[AnyId]) -> Coroutine[Any, Any, list[AnyId]]:
        """See :meth:`Inbox.once_each`. Await it, like :meth:`once`."""
        side, ids = async_side(session, _ASYNC), list(event_ids)
        return Pending(
            waiting_on(side.sync), "once_each()", lambda: side.run(lambda sync: self._sync.once_each(sync, ids))
        )


def _text(event_id: object) -> str:
    if isinstance(event_id, UUID):
        return str(event_id)
    if not isinstance(event_id, str):
        raise InvalidEvent(f"The event id must be a UUID or str, got {type(event_id).__name__}.", fix="Pass event.id.")
    if event_id.startswith(KEY_MARK):
        raise InvalidEvent(
            f"The event id {event_id!r} begins with the character that marks business keys.",
            fix="Use once_by_key(session, key) for a key, and ids of printable characters.",
        )
    return check_name("event id", event_id, most=MAX_EVENT_ID)


__all__ = ["AsyncInbox", "Inbox"]
