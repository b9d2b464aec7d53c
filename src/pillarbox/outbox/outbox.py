"""``Outbox.add``: the event into the caller's own transaction, or an error that says what to change."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine

from ..clock import Clock, SystemClock
from ..errors import InvalidEvent, NoDestination, PillarboxWarning
from ..event.destination import Destination, To, destinations
from ..event.event import Event, to_message, type_of, utc_moment
from ..event.ids import EventIds
from ..event.limits import DEFAULT_MAX_PAYLOAD_BYTES
from ..event.message import Message
from ..event.types import declared_type
from ..store.caller import AsyncTarget, Face, Target, async_side, connection_of, sync_engine
from ..store.drivers import DRIVERS
from ..store.naming import Naming
from ..store.pending import Pending, waiting_on
from ..store.wakeup import channel
from ..store.write import row_of
from . import guards
from .ledger import check_process, ledger_of
from .watch import watch

MAX_EVENTS: Final = 1_000
MAX_BYTES: Final = 16 * 1024 * 1024

_SYNC: Final = Face("Outbox", "AsyncOutbox")
_ASYNC: Final = Face("AsyncOutbox", "Outbox")

T = TypeVar("T")
Routes = Mapping[str | type, To]


@dataclass(frozen=True, slots=True)
class Queued:
    """An event that will leave when its transaction commits. ``id`` is what the consumer sees; log it.

    >>> str(Queued(UUID("0198f3a0-0000-7000-8000-000000000001")).id)
    '0198f3a0-0000-7000-8000-000000000001'
    """

    id: UUID


class Outbox:
    """Writes events in the caller's transaction: they exist exactly if its commit does.

    ``bind`` is the engine of the sessions that add; another one is refused. ``routes`` gives destinations by event type
    (its name or its class) where ``to`` is left out. ``max_payload_bytes`` limits one payload; ``max_events`` and
    ``max_bytes`` (payloads and headers) limit one transaction. ``notify`` makes PostgreSQL wake relays that listen,
    at the price of one lock at each commit (:mod:`pillarbox.store.wakeup`). ``table_prefix`` goes before the names of
    the tables: one schema can hold several outboxes, and one transaction may add to more than one. One Outbox serves
    any number of threads. Raises BadTablePrefix (PB-033).

    >>> from sqlalchemy.orm import Session
    >>> from pillarbox.store.engines import sqlite_engine
    >>> from pillarbox.store.install import install
    >>> engine = sqlite_engine("sqlite://")
    >>> done = install(engine)
    >>> outbox = Outbox(bind=engine)
    >>> with Session(engine) as session, session.begin():
    ...     queued = outbox.add(session, Event({"total": "19.90"}, type="order.created"), to="orders")
    >>> queued.id.version
    7
    """

    def __init__(
        self,
        bind: Engine | AsyncEngine | None = None,
        *,
        routes: Routes | None = None,
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        notify: bool = False,
        table_prefix: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._naming = Naming(table_prefix)
        self._bind = sync_engine(bind)
        self._routes = _by_name(routes or {})
        self._limits = guards.Limits(max_payload_bytes, max_events, max_bytes)
        self._notify = notify
        self._wake: Callable[[], None] | None = None
        self._clock = clock or SystemClock()
        self._ids = EventIds()
        # Engines are known by their dialect, which copies made by execution_options() share.
        self._known: WeakKeyDictionary[Dialect, guards.Tables] = WeakKeyDictionary()
        self._inherited: list[object] = []
        """Connections that a fork brought here: closed, they would end the parent's sessions."""
        if self._bind is not None:
            watch(self._bind)

    def add(
        self, session: Target, event: Event[Any], to: To | None = None, *, available_at: datetime | None = None
    ) -> Queued:
        """Write one event in the transaction of ``session`` (Session, scoped_session or Connection), begun if needed.

        Nothing is sent: the relay does that after the commit, and not before ``available_at`` (a datetime with a zone;
        by the database's clock), if that is given. Such an event enters the order of its key when it is due.

        Raises InvalidEvent (PB-010), NotSerialisable (PB-011), PayloadTooLarge (PB-012), AggregateIdMissing (PB-013),
        NoDestination (PB-014), NotAnEventType (PB-015) for the event; TablesMissing (PB-006), SchemaMismatch (PB-007),
        NoTransaction (PB-020), ForeignEngine (PB-021), SessionClosed (PB-022), ImplicitCommit (PB-023), SavepointTrap
        (PB-024), TransactionTooLarge (PB-025), WrongColour (PB-027), UsedAfterFork (PB-028) for the transaction.
        """
        return self.add_all(session, (event,), to, available_at=available_at)[0]

    def add_all(
        self,
        session: Target,
        events: Iterable[Event[Any]],
        to: To | None = None,
        *,
        available_at: datetime | None = None,
    ) -> list[Queued]:
        """Write several events in the order of the list, with a constant number of statements; all of them or none."""
        due = None if available_at is None else utc_moment("available_at", available_at)
        drafts = [self._draft(event, to) for event in events]
        _refuse_doubles(drafts)
        connection = connection_of(session, self._bind, _SYNC)
        check_process(connection, self._inherited)
        tables = self._known.get(connection.dialect) or self._meet(connection)
        rows = [row_of(draft.message, draft.more, partitions=tables.partitions, due=due) for draft in drafts]
        # Only where it may be past by the database's clock, too, is that worth a question.
        guards.write(connection, rows, tables, self._limits, perhaps_past=due is not None and due <= self._clock.now())
        self._arrange_waking(connection)
        return [Queued(draft.id) for draft in drafts]

    def nudges(self, wake: Callable[[], None] | None) -> None:
        """From now on, call ``wake`` (a relay's ``nudge``) after each commit that holds an event added here.

        Not after a rollback. It is called when the connection goes back to its pool or begins its next transaction; one
        that is kept open and idle leaves the event to the relay's polling. None ends it.
        """
        self._wake = wake

    def _arrange_waking(self, connection: Connection) -> None:
        if self._wake is None and not self._notify:
            return
        ledger = ledger_of(connection)
        if self._notify and connection.dialect.name == "postgresql":
            ledger.channels.add(channel(self._naming.prefix))
        if self._wake is not None:
            ledger.wakes.add(self._wake)

    def _meet(self, connection: Connection) -> guards.Tables:
        """The first add on an engine: are the tables there, and of this release?"""
        watch(connection.engine)
        if connection.dialect.driver not in DRIVERS:
            warnings.warn(
                f"Pillarbox is not tested with the database driver {connection.dialect.driver!r}, only with "
                f"{', '.join(DRIVERS)}: AUTOCOMMIT and implicit commits may go unseen.",
                PillarboxWarning,
                stacklevel=4,
            )
        tables = guards.read_tables(connection, self._naming)
        self._known[connection.dialect] = tables
        return tables

    def _draft(self, event: Event[Any], to: To | None) -> _Draft:
        first, *more = self._route(event) if to is None else destinations(to)
        made = self._ids.new()
        message = to_message(
            event, first, event_id=made, occurred_at=self._clock.now(), max_payload_bytes=self._limits.max_payload_bytes
        )
        return _Draft(event.id or made, message, more)

    def _route(self, event: Event[Any]) -> tuple[Destination, ...]:
        name = type_of(event).name if isinstance(event, Event) else type(event).__name__
        if name not in self._routes:
            raise NoDestination(f"The event {name!r} has no destination: no `to`, and no route for its type.")
        return self._routes[name]


class AsyncOutbox:
    """The same for AsyncSession, async_scoped_session and AsyncConnection: ``await outbox.add(session, event)``.

    A call that is never awaited makes the commit fail with NotAwaited (PB-026).

    >>> AsyncOutbox(routes={"order.created": "orders"}).add.__name__
    'add'
    """

    def __init__(
        self,
        bind: Engine | AsyncEngine | None = None,
        *,
        routes: Routes | None = None,
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        notify: bool = False,
        table_prefix: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._sync = Outbox(
            bind,
            routes=routes,
            max_payload_bytes=max_payload_bytes,
            max_events=max_events,
            max_bytes=max_bytes,
            notify=notify,
            table_prefix=table_prefix,
            clock=clock,
        )

    def add(
        self, session: AsyncTarget, event: Event[Any], to: To | None = None, *, available_at: datetime | None = None
    ) -> Coroutine[Any, Any, Queued]:
        """Write one event in the session's transaction; see :meth:`Outbox.add`. Await it."""
        return self._later(session, "add()", lambda sync: self._sync.add(sync, event, to, available_at=available_at))

    def add_all(
        self,
        session: AsyncTarget,
        events: Iterable[Event[Any]],
        to: To | None = None,
        *,
        available_at: datetime | None = None,
    ) -> Coroutine[Any, Any, list[Queued]]:
        """Write several events in the order of the list; see :meth:`Outbox.add_all`. Await it."""
        return self._later(
            session, "add_all()", lambda sync: self._sync.add_all(sync, events, to, available_at=available_at)
        )

    def nudges(self, wake: Callable[[], None] | None) -> None:
        """Call ``wake`` after each commit that holds an event added here; see :meth:`Outbox.nudges`."""
        self._sync.nudges(wake)

    def _later(self, session: AsyncTarget, what: str, write: Callable[[Target], T]) -> Coroutine[Any, Any, T]:
        side = async_side(session, _ASYNC)
        return Pending(waiting_on(side.sync), what, lambda: side.run(write))


class _Draft(NamedTuple):
    """An event that was checked and encoded; nothing is written yet."""

    id: UUID
    message: Message
    more: Sequence[Destination]


def _refuse_doubles(drafts: Sequence[_Draft]) -> None:
    if len({draft.id for draft in drafts}) == len(drafts):
        return
    ((twice, _),) = Counter(draft.id for draft in drafts).most_common(1)
    raise InvalidEvent(f"An event id is twice in the list: {twice}.", fix="Leave the ids out, or make each its own.")


def _by_name(routes: Routes) -> dict[str, tuple[Destination, ...]]:
    return {
        name if isinstance(name, str) else declared_type(name).name: destinations(to) for name, to in routes.items()
    }
