"""Once per consumer and event: the mark that commits together with the handler's own writes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from .errors import InvalidEvent, NoTransaction, SavepointTrap
from .event.limits import check_name
from .store.caller import AsyncTarget, Face, Target, async_side, connection_of, sync_engine
from .store.drivers import begins_by_itself, is_autocommit
from .store.inbox import mark
from .store.pending import Pending, waiting_on

MAX_CONSUMER: Final = 100
MAX_EVENT_ID: Final = 100

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
        connection = connection_of(session, self._bind, _SYNC)
        if is_autocommit(connection):
            raise NoTransaction(
                "The connection is in AUTOCOMMIT: the mark would be committed before the handler's writes."
            )
        sqlite = connection.dialect.name == "sqlite"
        if sqlite and connection.in_nested_transaction() and begins_by_itself(connection):
            raise SavepointTrap("The release of this SAVEPOINT may commit the mark before the handler's other writes.")
        return mark(connection, self.consumer, _text(event_id))


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


def _text(event_id: object) -> str:
    if isinstance(event_id, UUID):
        return str(event_id)
    if not isinstance(event_id, str):
        raise InvalidEvent(f"The event id must be a UUID or str, got {type(event_id).__name__}.", fix="Pass event.id.")
    return check_name("event id", event_id, most=MAX_EVENT_ID)


__all__ = ["AsyncInbox", "Inbox"]
