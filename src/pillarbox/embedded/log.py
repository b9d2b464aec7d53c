"""The embedded log: topics, partitions, groups and offsets in one SQLite file. For demos, tests and small programs."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from os import PathLike
from pathlib import Path
from uuid import uuid4

from ..errors import PillarboxError
from .file import LogFile
from .groups import GroupMember
from .murmur2 import partition_of_key
from .records import NewRecord, Position, Record

DEFAULT_PARTITIONS = 4
log = logging.getLogger("pillarbox.embedded")

_INSERT = "INSERT INTO record (partition_id, position, key, headers, body) VALUES (?, ?, ?, ?, ?)"
_END = "SELECT next_offset FROM topic_partition WHERE id = ?"
_IDS = "SELECT id FROM topic_partition WHERE topic = ? ORDER BY number"


class EmbeddedLog:
    """A log that several processes on one machine share.

    ``partitions`` is used for topics that do not exist yet. ``lease`` (seconds) is how long the partitions of a killed
    group member stay blocked. Each instance is one member of each group it reads for. Nothing is opened before the
    first use. Raises BadUrl, AccessRefused or BrokerUnavailable when the file cannot be used.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, EmbeddedLog(f"{folder}/events.log") as log:
    ...     _ = log.append([NewRecord("orders", "order-7", [("id", "1")], b"paid")])
    ...     [record.body for record in log.read("billing", ["orders"], 10)]
    [b'paid']
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        partitions: int = DEFAULT_PARTITIONS,
        lease: float = 10.0,
        busy_timeout: float = 5.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        self._partitions = partitions
        self._lease = lease
        self._now = now
        self._file = LogFile(self.path, busy_timeout=busy_timeout)
        self._member = uuid4().hex
        self._members: dict[str, GroupMember] = {}
        self._ids: dict[str, list[int]] = {}  # topic -> partition ids by number; they never change once made
        self._unkeyed = count()

    def __enter__(self) -> EmbeddedLog:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the file now, creating it where missing, so that a bad path shows at once."""
        self._file.open()

    def close(self) -> None:
        """Leave all groups and close the file."""
        try:
            for group in list(self._members):
                self.leave(group)
        except PillarboxError as error:
            log.warning("left no group in order, their leases will end by themselves: %s", error)
        finally:
            self._file.close()

    # Writing --------------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[NewRecord]) -> list[Position]:
        """Append all of them in one transaction, or none; they are on the disk when this returns.

        Topics are created on first use. Returns the positions in the same order.
        """
        if not records:
            return []
        with self._file.write() as db:
            ids = {topic: self._partition_ids(db, topic) for topic in {record.topic for record in records}}
            positions, rows, ends = self._place(db, records, ids)
            db.executemany(_INSERT, rows)
            db.executemany("UPDATE topic_partition SET next_offset = :end WHERE id = :id", ends)
        self._ids.update(ids)
        return positions

    def _place(
        self, db: sqlite3.Connection, records: Sequence[NewRecord], ids: dict[str, list[int]]
    ) -> tuple[list[Position], list[tuple[int, int, str | None, str, bytes]], list[dict[str, int]]]:
        ends: dict[int, int] = {}
        positions, rows = [], []
        for topic, key, headers, body in records:
            among = ids[topic]
            number = next(self._unkeyed) % len(among) if key is None else partition_of_key(key, len(among))
            partition_id = among[number]
            offset = ends.get(partition_id)
            if offset is None:
                (offset,) = db.execute(_END, (partition_id,)).fetchone()
            ends[partition_id] = offset + 1
            positions.append(Position(number, offset))
            rows.append((partition_id, offset, key, json.dumps(dict(headers), ensure_ascii=False), body))
        return positions, rows, [{"id": partition_id, "end": end} for partition_id, end in ends.items()]

    def create_topic(self, topic: str, partitions: int | None = None) -> None:
        """Create a topic with a number of partitions of its own; nothing happens when it exists."""
        with self._file.write() as db:
            self._partition_ids(db, topic, partitions)

    def _partition_ids(self, db: sqlite3.Connection, topic: str, partitions: int | None = None) -> list[int]:
        if topic in self._ids:
            return self._ids[topic]
        wanted = partitions or self._partitions
        made = db.execute("INSERT INTO topic (name, partitions) VALUES (?, ?) ON CONFLICT DO NOTHING", (topic, wanted))
        if made.rowcount == 1:
            numbers = [(topic, number) for number in range(wanted)]
            db.executemany("INSERT INTO topic_partition (topic, number) VALUES (?, ?)", numbers)
        return [id_ for (id_,) in db.execute(_IDS, (topic,))]

    # Reading in a group ---------------------------------------------------------------------------------------------

    def read(self, group: str, topics: Sequence[str], limit: int, *, timeout: float = 0.0) -> list[Record]:
        """Up to ``limit`` records that the group has not handed out, waiting at most ``timeout`` seconds for the first.

        Joins the group on the first call; topics that do not exist yet are created. Call it, or :meth:`renew`, more
        often than the lease, or another member takes over.
        """
        member = self._join(group, topics)
        deadline = time.monotonic() + timeout
        seen = -1
        pause = 0.005
        while True:
            changes = self._changes()
            due = member.beat_due()
            found = member.read(limit) if due or changes != seen else []
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            seen = changes
            time.sleep(min(pause, left))
            pause = min(0.05, pause * 1.5)

    def commit(self, group: str, records: Iterable[Record]) -> int:
        """These records are finished; returns how many partitions had been lost to another member meanwhile."""
        member = self._members.get(group)
        return member.commit(records) if member else 0

    def holds(self, group: str, record: Record) -> bool:
        """False once the record's partition was lost to another member: it is read again there."""
        member = self._members.get(group)
        return member is not None and member.holds(record)

    def renew(self, group: str) -> None:
        """Extend the leases during long work; safe from another thread."""
        member = self._members.get(group)
        if member:
            member.beat()

    def leave(self, group: str) -> None:
        """Leave the group; what was read and not committed comes again elsewhere."""
        member = self._members.pop(group, None)
        if member:
            member.leave()

    def _join(self, group: str, topics: Sequence[str]) -> GroupMember:
        member = self._members.get(group)
        if member is None or member.topics != tuple(topics):
            self.leave(group)
            for topic in topics:
                if topic not in self._ids:
                    self.create_topic(topic)
            member = GroupMember(self._file, group, self._member, topics, lease=self._lease, now=self._now)
            self._members[group] = member
        return member

    def _changes(self) -> int:
        # data_version moves only with other connections' commits, total_changes with our own.
        ((version,),) = self._file.query("PRAGMA data_version")
        return int(version) + self._file.open().total_changes

    # Looking --------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """The topics and how many records each has."""
        return dict(self._file.query("SELECT topic, sum(next_offset) FROM topic_partition GROUP BY topic"))

    def records(self, topic: str, *, limit: int = 1_000_000) -> list[Record]:
        """All records of a topic by partition and offset, outside any group."""
        rows = self._file.query(
            "SELECT p.number, r.position, r.key, r.headers, r.body FROM topic_partition p"
            " JOIN record r ON r.partition_id = p.id WHERE p.topic = ? ORDER BY p.number, r.position LIMIT ?",
            (topic, limit),
        )
        return [Record(topic, number, at, key, json.loads(headers), body) for number, at, key, headers, body in rows]

    def lag(self, group: str) -> dict[str, int]:
        """Records that the group has not committed, by topic."""
        found: dict[str, int] = defaultdict(int)
        for topic, behind in self._file.query(
            "SELECT p.topic, p.next_offset - g.committed FROM group_partition g"
            " JOIN topic_partition p ON p.id = g.partition_id WHERE g.group_name = ?",
            (group,),
        ):
            found[topic] += behind
        return dict(found)
