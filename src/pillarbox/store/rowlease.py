"""The row-lease store: competing relays take rows of the hot table under a lease, and settle under a fence."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from ..errors import ConfigError, PillarboxError
from ..policy.lanes import PARTITIONS
from ..ports import Claim, Settled, Settlement, WorkKey
from . import messages, parked
from .capabilities import Capabilities
from .claim import ClaimStrategy, Wanted, WorkRow, strategy
from .registration import Registration
from .server import look_at
from .settle import SomeLost, settle_all, settle_ours
from .tokens import Tokens
from .transactions import Transactions
from .workrows import Fence, WorkRows, work_rows

log = logging.getLogger("pillarbox.store")

DEFAULT_CLAIM_BYTES: Final = 64 * 1024 * 1024
_MAX_RELAY_ID: Final = 64


class RowLeaseStore:
    """A ports.WorkStore on a database, for one relay.

    ``relay_id`` (1 to 64 printable ASCII characters) is the owner written into claimed rows and must differ between
    living relays. ``lease`` in seconds, judged by the database's clock only. A claim reads at most ``max_bytes`` of
    payloads (but always one event); the rest of what it took goes back at once, uncounted.

    Nothing is opened before the first claim, which also checks the tables and the isolation level and registers the
    relay: TablesMissing (PB-006), SchemaMismatch (PB-007), ConfigError (PB-001), or LeaseMismatch (PB-032) while relays
    that lease partitions live. It registers again every third of its lease. Every call may raise DatabaseUnavailable
    (PB-004), DatabaseBusy (PB-031) or AccessRefused (PB-008), and may then be repeated with the same arguments, settle
    included. Calls may come from several threads.

    >>> from pillarbox.store.engines import relay_engine
    >>> store = RowLeaseStore(relay_engine("sqlite:///outbox.db"), relay_id="relay-1", lease=60.0)
    """

    def __init__(
        self,
        engine: Engine,
        *,
        relay_id: str,
        lease: float,
        max_bytes: int = DEFAULT_CLAIM_BYTES,
        tokens: Tokens | None = None,
        host: str = "",
        version: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (relay_id.isascii() and relay_id.isprintable() and 0 < len(relay_id) <= _MAX_RELAY_ID):
            raise ConfigError(f"A relay id has 1 to {_MAX_RELAY_ID} printable ASCII characters, got {relay_id!r}.")
        if not 0 < lease <= 86_400:
            raise ConfigError(f"A lease lasts more than 0 and at most 86,400 seconds, got {lease!r}.")
        self.relay_id = relay_id
        self._lease = lease
        self._max_bytes = max_bytes
        self._engine = engine
        self._transactions = Transactions(engine)
        self._rows: WorkRows = work_rows(engine.dialect.name)
        self._tokens = tokens or Tokens()
        # Relays that start together on a backlog begin at different partitions.
        self._start = zlib.crc32(relay_id.encode()) % PARTITIONS
        self._server: tuple[Capabilities, ClaimStrategy] | None = None
        self._registration = Registration(relay_id, "row", version, host)
        self._registered_at: float | None = None
        self._monotonic = monotonic

    def claim(self, limit: int) -> Claim:
        """See ports.Claims.claim."""
        _, claiming = self._known_server()
        fence = Fence(self.relay_id, self._tokens.next())
        if limit < 1 or not (claiming.peek is None or self._transactions.read(claiming.peek)):
            return Claim(fence.token, ())
        wanted = Wanted(fence, self._lease, self._start, limit)
        rows = self._transactions.write(lambda connection: claiming.claim(connection, wanted))
        if claiming.one_range and wanted.start and len(rows) < limit:
            rest = wanted._replace(limit=limit - len(rows), below=wanted.start)
            rows = [*rows, *self._transactions.write(lambda connection: claiming.claim(connection, rest))]
        self._start = _next_start(rows, limit)
        if not rows:
            return Claim(fence.token, ())
        # A transaction of its own: no row stays locked while payloads travel.
        found = self._transactions.read(lambda connection: messages.read(connection, rows, self._max_bytes))
        if found.unread:
            self.settle(Settlement(fence.token, given_back=found.unread))
        return Claim(fence.token, found.deliveries, found.orphans)

    def renew(self, token: int, keys: Sequence[WorkKey]) -> int:
        """See ports.Claims.renew."""
        fence, ordered = Fence(self.relay_id, token), sorted(keys)
        if not ordered:
            return 0
        return self._transactions.write(lambda connection: self._rows.extend(connection, ordered, fence, self._lease))

    def move_due(self, limit: int) -> int:
        """See ports.Claims.move_due."""
        server, _ = self._known_server()
        if limit < 1 or (server.claim == "sqlite" and not self._transactions.read(parked.any_due)):
            return 0
        return self._transactions.write(lambda connection: parked.move_due(connection, server, limit))

    def settle(self, settlement: Settlement) -> Settled:
        """See ports.Settlements.settle. May be repeated after an error: what the first call did is recognised."""
        if settlement.is_empty:
            return Settled(0, 0, 0)
        fence = Fence(self.relay_id, settlement.token)
        try:
            return self._transactions.write(lambda c: settle_all(c, self._rows, fence, settlement))
        except (SomeLost, IntegrityError):
            return self._transactions.write(lambda c: settle_ours(c, self._rows, fence, settlement))

    def close(self) -> None:
        """Take the registration back, if the database answers, and close the engine's idle connections."""
        if self._registered_at is not None:
            try:
                self._transactions.write(self._registration.leave)
            except PillarboxError as error:
                log.info("still registered until the lease ends: %s", error)
        self._registered_at = None
        self._engine.dispose()

    def _known_server(self) -> tuple[Capabilities, ClaimStrategy]:
        if self._server is None:
            server = self._transactions.read(look_at)
            log.info("outbox on %s, claims by %s", server, server.claim)
            self._server = server, strategy(server.claim)
        self._stay_registered()
        return self._server

    def _stay_registered(self) -> None:
        """Say that this relay lives. Before each claim that comes late: the tables may have been switched over."""
        now = self._monotonic()
        if self._registered_at is None or now - self._registered_at >= self._lease / 3:
            self._transactions.write(lambda connection: self._registration.enter(connection, self._lease))
            self._registered_at = now


def _next_start(rows: Sequence[WorkRow], limit: int) -> int:
    """Behind the last partition taken. At the first one when everything was taken: idling costs one statement."""
    return rows[-1][0] + 1 if len(rows) == limit else 0
