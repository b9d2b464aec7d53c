"""Consumer groups of the embedded log: who reads which partition, and how far the group has come.

Each member leases partitions in the file itself, so members may be threads or processes. A member that dies is replaced
when its lease ends. Whoever was replaced cannot move the group's position: commits are fenced by owner and token.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .file import LogFile
from .records import Record

log = logging.getLogger("pillarbox.embedded")

_READ = (
    "SELECT position, key, headers, body FROM record"
    " WHERE partition_id = ? AND position >= ? ORDER BY position LIMIT ?"  # one range of record's primary key
)

_IMPOSSIBLE = 10  # leases: an end that far ahead is left from before the clock was set back
_PARTITIONS = "SELECT id, number FROM topic_partition WHERE topic = ? ORDER BY number"


@dataclass(slots=True)
class Owned:
    """A partition that this member reads: its lease token, the next offset to read, and what was handed out."""

    topic: str
    number: int
    token: int
    next_offset: int
    in_flight: set[int] = field(default_factory=set)


class GroupMember:
    """One member of one group. ``read`` goes on after what it handed out, a restart after what was committed."""

    def __init__(
        self, file: LogFile, group: str, member: str, topics: Sequence[str], *, lease: float, now: Callable[[], float]
    ) -> None:
        self.topics = tuple(topics)
        self._file = file
        self._group = group
        self._member = member
        self._lease = lease
        self._now = now
        self._lock = threading.RLock()
        self._owned: dict[int, Owned] = {}
        self._beat_at = 0.0
        self._turn = 0

    def read(self, limit: int) -> list[Record]:
        """Up to ``limit`` records not handed out yet, from the partitions held; takes turns between partitions."""
        with self._lock:
            if self.beat_due():
                self.beat()
            found: list[Record] = []
            order = sorted(self._owned)
            self._turn += 1
            for at in range(len(order)):
                if len(found) >= limit:
                    break
                partition_id = order[(self._turn + at) % len(order)]
                found.extend(self._read_one(partition_id, self._owned[partition_id], limit - len(found)))
            return found

    def _read_one(self, partition_id: int, owned: Owned, limit: int) -> Iterable[Record]:
        rows = self._file.query(_READ, (partition_id, owned.next_offset, limit))
        if rows:
            owned.next_offset = rows[-1][0] + 1
            owned.in_flight.update(row[0] for row in rows)
        return [Record(owned.topic, owned.number, at, key, json.loads(text), body) for at, key, text, body in rows]

    def beat_due(self) -> bool:
        """True when leases should be renewed; also when the clock was set back."""
        return not self._beat_at <= self._now() < self._beat_at + min(1.0, self._lease / 3)

    def beat(self) -> None:
        """Renew the leases, give up what is above the fair share, take what is free. Called by ``read``, too."""
        with self._lock:
            self._beat_at = self._now()
            with self._file.write() as db:
                self._announce(db)
                self._renew(db)
                for topic in self.topics:
                    self._balance(db, topic)

    def commit(self, records: Iterable[Record]) -> int:
        """These are finished. The group's position moves up to the first one in each partition that is not.

        Returns how many partitions had been lost to another member; their records come again there.
        """
        with self._lock:
            touched: dict[int, Owned] = {}
            for record in records:
                for partition_id, owned in self._owned.items():
                    if (owned.topic, owned.number) == (record.topic, record.partition):
                        owned.in_flight.discard(record.offset)
                        touched[partition_id] = owned
            if not touched:
                return 0
            with self._file.write() as db:
                lost = [id_ for id_, owned in touched.items() if not self._store(db, id_, owned)]
            self._forget(lost)
            return len(lost)

    def holds(self, record: Record) -> bool:
        """True while the record's partition is this member's, as far as it knows, and the record is not committed."""
        with self._lock:
            for owned in self._owned.values():
                if (owned.topic, owned.number) == (record.topic, record.partition):
                    return record.offset in owned.in_flight
            return False

    def leave(self) -> None:
        """Give everything back at once, so that others need not wait for the lease to end."""
        with self._lock, self._file.write() as db:
            db.execute(
                "UPDATE group_partition SET owner = NULL, leased_until = 0 WHERE group_name = ? AND owner = ?",
                (self._group, self._member),
            )
            db.execute("DELETE FROM group_member WHERE group_name = ? AND member = ?", (self._group, self._member))
            self._owned.clear()

    def _store(self, db: sqlite3.Connection, partition_id: int, owned: Owned) -> bool:
        position = min(owned.in_flight, default=owned.next_offset)
        changed = db.execute(
            "UPDATE group_partition SET committed = ?"
            " WHERE group_name = ? AND partition_id = ? AND owner = ? AND token = ?",
            (position, self._group, partition_id, self._member, owned.token),
        )
        return changed.rowcount == 1

    def _announce(self, db: sqlite3.Connection) -> None:
        until = self._beat_at + self._lease
        db.executemany(
            "INSERT INTO group_member (group_name, topic, member, seen_until) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET seen_until = excluded.seen_until",
            [(self._group, topic, self._member, until) for topic in self.topics],
        )
        db.execute(
            "DELETE FROM group_member WHERE group_name = ? AND (seen_until <= ? OR seen_until > ?)",
            (self._group, self._beat_at, self._beat_at + _IMPOSSIBLE * self._lease),
        )

    def _renew(self, db: sqlite3.Connection) -> None:
        lost = []
        for partition_id, owned in self._owned.items():
            renewed = db.execute(
                "UPDATE group_partition SET leased_until = ?"
                " WHERE group_name = ? AND partition_id = ? AND owner = ? AND token = ?",
                (self._beat_at + self._lease, self._group, partition_id, self._member, owned.token),
            )
            if renewed.rowcount == 0:
                lost.append(partition_id)
        self._forget(lost)

    def _balance(self, db: sqlite3.Connection, topic: str) -> None:
        partitions = db.execute(_PARTITIONS, (topic,)).fetchall()
        (members,) = db.execute(
            "SELECT count(*) FROM group_member WHERE group_name = ? AND topic = ?", (self._group, topic)
        ).fetchone()
        fair = -(-len(partitions) // members)
        mine = [id_ for id_, owned in self._owned.items() if owned.topic == topic]
        # Only what has nothing in flight is given up: its records would be handed out twice.
        for partition_id in [id_ for id_ in mine if not self._owned[id_].in_flight][: max(0, len(mine) - fair)]:
            self._release(db, partition_id)
            mine.remove(partition_id)
        for partition_id, number in partitions:
            if len(mine) >= fair:
                break
            if partition_id not in self._owned and self._take(db, partition_id, topic, number):
                mine.append(partition_id)

    def _release(self, db: sqlite3.Connection, partition_id: int) -> None:
        db.execute(
            "UPDATE group_partition SET owner = NULL, leased_until = 0"
            " WHERE group_name = ? AND partition_id = ? AND owner = ?",
            (self._group, partition_id, self._member),
        )
        del self._owned[partition_id]

    def _take(self, db: sqlite3.Connection, partition_id: int, topic: str, number: int) -> bool:
        db.execute(
            "INSERT INTO group_partition (group_name, partition_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (self._group, partition_id),
        )
        row = db.execute(
            "UPDATE group_partition SET owner = ?, token = token + 1, leased_until = ?"
            " WHERE group_name = ? AND partition_id = ?"
            " AND (owner IS NULL OR owner = ? OR leased_until <= ? OR leased_until > ?) RETURNING token, committed",
            (
                self._member,
                self._beat_at + self._lease,
                self._group,
                partition_id,
                self._member,
                self._beat_at,
                self._beat_at + _IMPOSSIBLE * self._lease,
            ),
        ).fetchone()
        if row is None:
            return False
        self._owned[partition_id] = Owned(topic, number, token=row[0], next_offset=row[1])
        return True

    def _forget(self, lost: Iterable[int]) -> None:
        for partition_id in lost:
            owned = self._owned.pop(partition_id)
            log.warning(
                "group %s: partition %s of %s was taken over by another member", self._group, owned.number, owned.topic
            )
