"""The SQLite file under the embedded log: opening it, one writer at a time, and its errors in our words."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import AccessRefused, BadUrl, BrokerUnavailable, PillarboxError, UsedAfterFork

APPLICATION_ID: Final = 0x50424C47  # "PBLG" in the file's header tells our file from any other SQLite file
FORMAT: Final = 1
_WAIT: Final = "events that were not confirmed wait in the outbox."
_MODES: Final = "owner and mode of the file and its directory"

_TABLES: Final = (
    "CREATE TABLE topic (name TEXT PRIMARY KEY, partitions INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE topic_partition (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, number INTEGER NOT NULL,"
    " next_offset INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, number))",
    # A rowid table with an index, not WITHOUT ROWID: bodies may be large, and a clustered index would carry them.
    "CREATE TABLE record (partition_id INTEGER NOT NULL, position INTEGER NOT NULL, key TEXT, headers TEXT NOT NULL,"
    " body BLOB NOT NULL, PRIMARY KEY (partition_id, position))",
    "CREATE TABLE group_member (group_name TEXT, topic TEXT, member TEXT, seen_until REAL NOT NULL,"
    " PRIMARY KEY (group_name, topic, member)) WITHOUT ROWID",
    "CREATE TABLE group_partition (group_name TEXT, partition_id INTEGER, committed INTEGER NOT NULL DEFAULT 0,"
    " owner TEXT, token INTEGER NOT NULL DEFAULT 0, leased_until REAL NOT NULL DEFAULT 0,"
    " PRIMARY KEY (group_name, partition_id)) WITHOUT ROWID",
)


class CommitUnknown(BrokerUnavailable):
    """Writing the commit failed in the middle: the records may or may not be in the log."""


class LogFile:
    """One connection to the file. Safe between threads (a lock) and processes (SQLite's); not across a fork."""

    def __init__(self, path: Path, *, busy_timeout: float) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()

    def open(self) -> sqlite3.Connection:
        """Open, and create the file and its tables where missing. Does nothing when it is open."""
        with self._lock:
            if os.getpid() != self._pid:
                raise UsedAfterFork(f"The log {self.path} was opened in another process (before a fork).")
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def close(self) -> None:
        """Close; a later call opens again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and os.getpid() == self._pid:
                connection.close()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Read rows from one snapshot."""
        with self._lock:
            connection = self.open()
            try:
                return connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise explain(error, self.path) from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: committed at the end of the block, rolled back when it raises."""
        with self._lock:
            connection = self.open()
            try:
                connection.execute("BEGIN IMMEDIATE")  # takes the write lock first: no upgrade that could deadlock
                try:
                    yield connection
                except BaseException:
                    _roll_back(connection)
                    raise
            except sqlite3.Error as error:
                raise explain(error, self.path) from error
            self._commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            reason = explain(error, self.path)
            if _kind(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY):
                raise reason from error  # refused before the commit was written
            raise CommitUnknown(reason.message, fix=reason.how_to_fix) from error

    def _connect(self) -> sqlite3.Connection:
        _check_place(self.path)
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
            )
            self._prepare(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise explain(error, self.path) from error
        except PillarboxError:
            if connection is not None:
                connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self._is_ours(connection):
            connection.execute("BEGIN IMMEDIATE")
            if not self._is_ours(connection):  # another process may have been faster
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                for statement in _TABLES:
                    connection.execute(statement)
            connection.execute("COMMIT")
        _use_wal(connection, time.monotonic() + self._busy_timeout)
        # FULL, not NORMAL: a confirmed record leaves the outbox, so it must survive a power cut and not only a kill.
        connection.execute("PRAGMA synchronous = FULL")

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == APPLICATION_ID and version == FORMAT:
            return True
        if application == APPLICATION_ID:
            message = f"The log {self.path} has format {version}, this release reads {FORMAT}."
            raise BadUrl(message, fix="Upgrade Pillarbox.")
        if tables or application or version:
            raise BadUrl(
                f"{self.path} is a SQLite database, but no Pillarbox log.",
                fix="Give the log a file of its own, apart from the application's database.",
            )
        return False


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # Changing the journal mode needs the file for itself and does not wait for the busy time-out: try again.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _kind(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise BadUrl(f"{path} is a directory; the embedded log is a file.", fix="Name a file in it.")
    if not path.parent.is_dir():
        raise BadUrl(
            f"The directory {path.parent} does not exist.", fix=f"mkdir -p {path.parent}, or correct the path."
        )


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _kind(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code; the upper bits say more precisely where


def explain(error: sqlite3.Error, path: Path) -> PillarboxError:
    """The Pillarbox error for what SQLite reported, by its code."""
    match _kind(error):
        case sqlite3.SQLITE_FULL:
            return BrokerUnavailable(f"The disk is full: {path} cannot grow.", fix=f"Free space; {_WAIT}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BrokerUnavailable(f"Another process keeps {path} locked.", fix=f"Find that process; {_WAIT}")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH | sqlite3.SQLITE_CANTOPEN:
            return AccessRefused(f"{path} cannot be opened for writing: {error}.", fix=f"Check {_MODES}.")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return BadUrl(f"{path} is no Pillarbox log, or is damaged: {error}.", fix="Name another file.")
        case _:
            return BrokerUnavailable(f"The log {path} cannot be used: {error}.", fix=f"Check the disk; {_WAIT}")
