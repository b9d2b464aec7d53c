"""Living relays, and which kind of them the tables belong to: those that lease rows, or those that lease partitions.

Both kinds at once would send everything twice and out of order, so the first of a kind switches the tables over, and
does so only when no relay of the other kind lives. The one row of ``outbox_meta`` is locked meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection, text

from ..errors import LeaseMismatch
from .dbtime import after, now

FORGOTTEN_AFTER: Final = 86_400.0  # seconds after its end that a registration is deleted

Lease = Literal["row", "partition"]


class StillLeased(Exception):
    """Rows of a relay that is gone are still leased: to be tried again."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One relay's row in ``outbox_relay``. Times are seconds of the database's clock."""

    relay_id: str
    lease: Lease
    version: str = ""
    host: str = ""

    def enter(self, connection: Connection, seconds: float) -> None:
        """Switch the tables to this kind if need be, and register, in the open transaction.

        LeaseMismatch (PB-032) while relays of the other kind live, StillLeased while rows are in the hands of one that
        does not.
        """
        lock = "" if connection.dialect.name == "sqlite" else " FOR UPDATE"
        meta = f"SELECT lease, partitions FROM outbox_meta WHERE one = 1{lock}"
        lease, partitions = connection.execute(text(meta)).one()
        if lease != self.lease:
            self._refuse_while_others_live(connection)
            _SWITCH[self.lease](connection)
            connection.execute(text("UPDATE outbox_meta SET lease = :lease WHERE one = 1"), {"lease": self.lease})
        if self.lease == "partition":
            add_missing_partitions(connection, partitions)
        self.renew(connection, seconds)
        forgotten = f"DELETE FROM outbox_relay WHERE seen_until < {after(connection, str(-FORGOTTEN_AFTER))}"
        connection.execute(text(forgotten))

    def stay(self, connection: Connection, seconds: float) -> None:
        """Register again; LeaseMismatch (PB-032) when the tables were switched over meanwhile."""
        check_lease(connection, self.lease)
        self.renew(connection, seconds)

    def stay_at_once(self, connection: Connection, seconds: float) -> bool:
        """The same in one statement without a transaction, or False: then it has to be done the long way."""
        until = after(connection, f"{seconds:f}")
        sql = (
            f"UPDATE outbox_relay SET seen_until = {until} WHERE relay_id = :relay AND lease = :lease"
            " AND EXISTS (SELECT 1 FROM outbox_meta WHERE one = 1 AND outbox_meta.lease = :lease)"
        )
        return connection.execute(text(sql), {"relay": self.relay_id, "lease": self.lease}).rowcount == 1

    def renew(self, connection: Connection, seconds: float) -> None:
        """Write the row."""
        until = after(connection, f"{seconds:f}")
        row = {"relay": self.relay_id, "lease": self.lease, "version": self.version[:32], "host": self.host[:255]}
        there = connection.execute(
            text(
                f"UPDATE outbox_relay SET seen_until = {until}, lease = :lease, version = :version, host = :host"
                " WHERE relay_id = :relay"
            ),
            row,
        ).rowcount
        if not there:
            connection.execute(
                text(
                    "INSERT INTO outbox_relay (relay_id, seen_until, lease, version, host, started_at)"
                    f" VALUES (:relay, {until}, :lease, :version, :host, {now(connection)})"
                ),
                row,
            )

    def leave(self, connection: Connection) -> None:
        """Delete the row."""
        connection.execute(text("DELETE FROM outbox_relay WHERE relay_id = :relay"), {"relay": self.relay_id})

    def _refuse_while_others_live(self, connection: Connection) -> None:
        living = connection.scalars(
            text(
                f"SELECT relay_id FROM outbox_relay WHERE lease <> :lease AND seen_until > {now(connection)}"
                " ORDER BY relay_id"
            ),
            {"lease": self.lease},
        ).all()
        if living:
            other = "rows" if self.lease == "partition" else "partitions"
            raise LeaseMismatch(f"Relays that lease {other} are at work on these tables: {', '.join(living)}.")


def check_lease(connection: Connection, lease: Lease) -> None:
    """LeaseMismatch (PB-032) unless the tables belong to relays of this kind; they do until the transaction ends."""
    share = {"postgresql": " FOR SHARE", "sqlite": ""}.get(connection.dialect.name, " LOCK IN SHARE MODE")
    found = connection.execute(text(f"SELECT lease FROM outbox_meta WHERE one = 1{share}")).scalar_one()
    if found != lease:
        raise LeaseMismatch(f"The tables were switched over to relays that lease {found}s.")


def add_missing_partitions(connection: Connection, partitions: int) -> None:
    """A partition table that somebody emptied is filled again; the caller has locked ``outbox_meta``."""
    there = set(connection.scalars(text("SELECT partition_no FROM outbox_partition")).all())
    missing = [{"number": number} for number in range(partitions) if number not in there]
    if missing:
        connection.execute(text("INSERT INTO outbox_partition (partition_no) VALUES (:number)"), missing)


def _to_partitions(connection: Connection) -> None:
    leased = f"SELECT 1 FROM outbox_ready WHERE leased_until > {now(connection)} LIMIT 1"
    if connection.execute(text(leased)).first() is not None:
        raise StillLeased
    # What a row lease made ready again may have any id, so nothing may be passed over.
    connection.execute(text("UPDATE outbox_partition SET low_id = 0, careful_to = 0, crashes = 0"))


def _to_rows(connection: Connection) -> None:
    """What was held may go at once, without order; no partition has an owner any more."""
    connection.execute(
        text(f"UPDATE outbox_parked SET state = 'RETRY', due_at = {now(connection)} WHERE state = 'HELD'")
    )
    connection.execute(text("DELETE FROM outbox_lane"))
    connection.execute(
        text(
            "UPDATE outbox_partition SET owner = '', token = token + 1, leased_until = '1970-01-01 00:00:00',"
            " handed_to = 0"
        )
    )


_SWITCH: Final = {"partition": _to_partitions, "row": _to_rows}
