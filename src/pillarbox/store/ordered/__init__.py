"""The partition-lease store: relays own partitions, read them in order, and settle whole rounds under a fence."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, text

from ...errors import ConfigError, LeaseMismatch
from ...ports import (
    Fleet,
    Hold,
    OrderedSettled,
    OrderedSettlement,
    Partition,
    Progress,
    Reading,
    Signs,
    Span,
    Stream,
    Tenure,
    WorkKey,
)
from ..registration import Registration, StillLeased, add_missing_partitions, check_lease
from ..server import look_at
from ..transactions import Transactions
from . import holds, moving, ownership, signs
from .kept import Database, KeptConnection
from .ownership import Wanted
from .reading import Reader
from .removing import AtOnce
from .settling import Settling
from .statements import statements
from .unheld import Place, Unheld, free
from .writers import Writers

__all__ = ["PartitionStore"]

log = logging.getLogger("pillarbox.store")
T = TypeVar("T")

_MAX_RELAY_ID: Final = 64
_LOOK_AGAIN: Final = 0.25  # seconds, while rows of a relay of the other kind are still leased


class PartitionStore:
    """A ports.OrderedStore on a database, for one relay.

    ``relay_id`` (1 to 64 printable ASCII characters) must differ between living relays. ``lease`` in seconds, judged by
    the database's clock only; every settlement renews it. ``host`` and ``version`` are shown to people.

    Nothing is opened before the first call, which also checks the tables and the isolation level: TablesMissing
    (PB-006), SchemaMismatch (PB-007) or ConfigError (PB-001). Two connections are kept from then on: one for ``stay``,
    which another thread may call, and one for all else. Every call may raise DatabaseUnavailable (PB-004),
    DatabaseBusy (PB-031) or AccessRefused (PB-008), and may then be repeated with the same arguments.

    >>> from pillarbox.store.engines import relay_engine
    >>> store = PartitionStore(relay_engine("sqlite:///outbox.db"), relay_id="relay-1", lease=60.0)
    """

    def __init__(
        self,
        engine: Engine,
        *,
        relay_id: str,
        lease: float,
        host: str = "",
        version: str = "",
        keep_sent: bool = True,
        pause: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (relay_id.isascii() and relay_id.isprintable() and 0 < len(relay_id) <= _MAX_RELAY_ID):
            raise ConfigError(f"A relay id has 1 to {_MAX_RELAY_ID} printable ASCII characters, got {relay_id!r}.")
        if not 0 < lease <= 86_400:
            raise ConfigError(f"A lease lasts more than 0 and at most 86,400 seconds, got {lease!r}.")
        self.relay_id = relay_id
        self._lease = lease
        self._pause = pause
        self._monotonic = monotonic
        self._engine = engine
        self._registration = Registration(relay_id, "partition", version, host)
        self._database, self._renewals = _database(engine, pause), _database(engine, pause)
        self._statements = statements(engine.dialect.name)
        self._reader = Reader(engine.dialect.name, self._statements, relay_id)
        at_once = None if keep_sent else AtOnce()
        self._settling = Settling(engine.dialect.name, self._statements, relay_id, lease, at_once)
        self._writers = Writers(monotonic)
        self._unheld = Unheld()
        self._partitions: int | None = None

    # ports.Ownership --------------------------------------------------------------------------------------------------

    def enter(self, seconds: float) -> None:
        """See ports.Ownership.enter. Waits up to a lease for rows that a row-lease relay left leased."""
        self._known_partitions()
        self._renewals.read(_nothing)  # that no second connection is to be had shows now, not at the first renewal
        deadline = self._monotonic() + self._lease
        while True:
            try:
                return self._database.write(lambda connection: self._registration.enter(connection, seconds))
            except StillLeased as error:
                if self._monotonic() > deadline:
                    raise LeaseMismatch("Rows are still leased by a relay that leases rows.") from error
            self._pause(_LOOK_AGAIN)

    def stay(self, seconds: float, tenures: Sequence[Tenure]) -> Sequence[Tenure]:
        """See ports.Ownership.stay. LeaseMismatch (PB-032) when the tables were switched over meanwhile."""

        def renew(connection: Connection) -> list[Tenure]:
            self._registration.stay(connection, seconds)
            return ownership.extend(connection, self.relay_id, self._lease, tenures)

        def renew_at_once(connection: Connection) -> bool:
            return self._registration.stay_at_once(connection, seconds) and ownership.extend_all(
                connection, self.relay_id, self._lease, tenures
            )

        # Two statements where that is all it takes: a relay that is idle asks for little.
        if self._engine.dialect.name in ("mysql", "mariadb") and self._renewals.read(renew_at_once):
            return []
        lost = self._renewals.write(renew)
        self._tell_of_loss(self._renewals, lost, "its lease was not renewed")
        return lost

    def leave(self) -> None:
        """See ports.Ownership.leave."""
        self._database.write(self._registration.leave)

    def fleet(self) -> Fleet:
        """See ports.Ownership.fleet. Partitions whose rows somebody deleted are there again."""
        found = self._database.read(ownership.fleet)
        partitions = self._known_partitions()
        if len(found.partitions) >= partitions:
            return found
        log.warning("%d of %d rows of outbox_partition are missing", partitions - len(found.partitions), partitions)
        self._database.write(lambda connection: _heal(connection, partitions))
        return self._database.read(ownership.fleet)

    def acquire(self, partition_nos: Sequence[int]) -> Sequence[Partition]:
        """See ports.Ownership.acquire. LeaseMismatch (PB-032) when the tables were switched over meanwhile."""
        if not partition_nos:
            return []
        wanted = Wanted.of(partition_nos, self.relay_id, self._lease)

        def take(connection: Connection) -> list[Partition]:
            check_lease(connection, "partition")
            return ownership.acquire(connection, wanted)

        return self._database.write(take)

    def release(self, progress: Sequence[Progress]) -> None:
        """See ports.Ownership.release."""
        if progress:
            self._database.write(lambda connection: ownership.release(connection, self.relay_id, progress))

    # ports.OrderedQueue -----------------------------------------------------------------------------------------------

    def read(self, spans: Sequence[Span], limit: int, max_bytes: int, held: Collection[int]) -> Reading:
        """See ports.OrderedQueue.read."""
        return self._database.read(lambda connection: self._reader.read(connection, spans, limit, max_bytes, held))

    def read_parked(self, stream: Stream, after: WorkKey | None, limit: int, max_bytes: int) -> Reading:
        """See ports.OrderedQueue.read_parked."""
        return self._database.read(
            lambda connection: self._reader.read_parked(connection, stream, after, limit, max_bytes)
        )

    def holds(self, partition_nos: Sequence[int], *, drain_only: bool) -> Sequence[Hold]:
        """See ports.OrderedQueue.holds."""
        return self._database.read(
            lambda connection: holds.of_partitions(connection, partition_nos, drain_only=drain_only)
        )

    def signs(self, spans: Sequence[Span]) -> Signs:
        """See ports.OrderedQueue.signs."""
        return self._database.read(lambda connection: signs.look(connection, spans))

    def stragglers(self, spans: Sequence[Span]) -> Sequence[int]:
        """See ports.OrderedQueue.stragglers. Held rows whose hold is gone come due, too, some pages at a time."""
        numbers = [span.partition_no for span in spans]
        places: list[Place] = self._database.read(lambda connection: self._unheld.look(connection, numbers))
        if places:
            freed = self._database.write(lambda connection: free(connection, places))
            log.warning("%d held rows had no hold any more (deleted by hand?); they are sent", freed)
        return self._database.read(lambda connection: signs.stragglers(connection, spans))

    def move_due(self, tenures: Sequence[Tenure], limit: int) -> Mapping[int, int]:
        """See ports.OrderedQueue.move_due."""
        numbers = [one.partition_no for one in tenures]
        if limit < 1 or not numbers or not self._database.read(lambda c: moving.any_due(c, numbers)):
            return {}
        attempts = 0

        def move(connection: Connection) -> dict[int, int]:
            nonlocal attempts
            attempts += 1
            moved = moving.move_due(connection, self._statements, self.relay_id, tenures, limit)
            if attempts == 1:
                return moved
            # An earlier attempt may have been committed unheard: from where they are stored, nothing is missed.
            return {number: low + 1 for number, low in moving.low_ids(connection, numbers).items()} | moved

        return self._database.write(move)

    def writers(self) -> frozenset[str] | None:
        """See ports.OrderedQueue.writers."""
        return self._writers.look(self._database, self._engine.dialect.name)

    def charge(self, tenure: Tenure, key: WorkKey, parked: bool) -> int:
        """See ports.OrderedQueue.charge. 0 when the partition is lost or the row is gone: then it must not be sent."""
        return self._database.write(
            lambda connection: moving.charge(connection, self.relay_id, tenure, key, parked=parked)
        )

    def settle(self, settlement: OrderedSettlement) -> OrderedSettled:
        """See ports.OrderedQueue.settle. May be repeated after an error: what the first call did is recognised."""
        if not settlement.progress:
            return OrderedSettled(0, 0)
        settled = self._settling.settle(self._database, settlement)
        self._tell_of_loss(self._database, settled.lost, "its round was not settled")
        return settled

    def close(self) -> None:
        """Return the kept connections and close the engine's idle ones."""
        self._database.close()
        self._renewals.close()
        self._engine.dispose()

    def _known_partitions(self) -> int:
        if self._partitions is None:
            self._partitions = Transactions(self._engine).read(_first_look)
        return self._partitions

    def _tell_of_loss(self, database: Database, lost: Sequence[Tenure], therefore: str) -> None:
        if not lost:
            return
        owners = database.read(lambda connection: ownership.owners(connection, [one.partition_no for one in lost]))
        for tenure in lost:
            owner, token = owners.get(tenure.partition_no, ("", 0))
            log.warning(
                "partition %d was lost: it was ours under token %d and is %s's under token %d; %s",
                tenure.partition_no,
                tenure.token,
                owner or "nobody",
                token,
                therefore,
            )


def _database(engine: Engine, pause: Callable[[float], None]) -> Database:
    """SQLite keeps no connection: its reads cost no round trip, and its transactions have kinds of their own."""
    rules = Transactions(engine, pause=pause)
    return rules if engine.dialect.name == "sqlite" else KeptConnection(engine, rules)


def _first_look(connection: Connection) -> int:
    server = look_at(connection)
    log.info("outbox on %s, partitions leased", server)
    return int(connection.execute(text("SELECT partitions FROM outbox_meta WHERE one = 1")).scalar_one())


def _nothing(_connection: Connection) -> None:
    """Ask nothing: the connection is opened all the same."""


def _heal(connection: Connection, partitions: int) -> None:
    lock = "" if connection.dialect.name == "sqlite" else " FOR UPDATE"
    connection.execute(text(f"SELECT one FROM outbox_meta WHERE one = 1{lock}"))
    add_missing_partitions(connection, partitions)
