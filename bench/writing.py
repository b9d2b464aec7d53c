"""The role of an application: writes events at a steady pace, each in a transaction of its own, by the bare driver.

Its last line is the list of (event id, when its commit had returned), in nanoseconds of the machine's clock.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from sqlalchemy import make_url

from bench.child import Told, questions, say
from bench.fill import AGGREGATES, payload_of
from pillarbox.policy.lanes import lane_of, partition_of

WRITERS = 4
COLUMNS = (
    "event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, destination, content_type, payload,"
    " occurred_at, recorded_at"
)
EVENT = (
    f"INSERT INTO outbox_event ({COLUMNS}) VALUES (%s, 'order.created', 1, 'order', %s, %s, %s, 'application/json', %s"
)
READY = "INSERT INTO outbox_ready (partition_no, id, dest, lane) "
MYSQL_EVENT = EVENT + ", UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
MYSQL_READY = READY + "VALUES (%s, %s, 0, %s)"
PG_BOTH = f"WITH e AS ({EVENT}, clock_timestamp(), clock_timestamp()) RETURNING id) {READY}SELECT %s, id, 0, %s FROM e"

Commits = list[tuple[str, int]]


def main(told: Told) -> None:
    """``told``: database, destination, rate (events per second, all writers together), seconds, and perhaps payload."""
    per_writer = told["rate"] / WRITERS
    writers = [Writer(told["database"], told["destination"], told.get("payload", 300)) for _ in range(WRITERS)]
    say("ready")
    next(questions())
    stop = threading.Event()
    start = time.monotonic() + 0.05
    threads = [
        threading.Thread(target=writer.run, args=(start + n / told["rate"], 1 / per_writer, told["seconds"], stop))
        for n, writer in enumerate(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say([commit for writer in writers for commit in writer.commits])


class Writer:
    """One connection that writes one event at a time."""

    def __init__(self, url: str, destination: str, payload: int) -> None:
        self._postgres = make_url(url).get_backend_name() == "postgresql"
        self._connection = _connect(url)
        self._cursor: Any = self._connection.cursor()
        self._destination = destination
        self._payload = payload_of(payload)
        self._number = 0
        self.commits: Commits = []

    def run(self, start: float, interval: float, seconds: float, stop: threading.Event) -> None:
        """At ``start`` and then every ``interval``; a writer that is late does not catch up by more than it missed."""
        due = start
        while due < start + seconds and not stop.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            self.write()
            due += interval

    def write(self) -> None:
        """One event, committed and noted."""
        self._number += 1
        event_id = str(uuid.uuid4())
        key = f"order-{hash((id(self), self._number)) % AGGREGATES:04d}"
        lane = lane_of(key)
        event = (event_id, key, key, self._destination, self._payload)
        if self._postgres:
            self._cursor.execute(PG_BOTH, (*event, partition_of(lane), lane), prepare=True)
        else:
            self._cursor.execute(MYSQL_EVENT, event)
            self._cursor.execute(MYSQL_READY, (partition_of(lane), self._cursor.lastrowid, lane))
        self._connection.commit()
        self.commits.append((event_id, time.time_ns()))


def _connect(url: str) -> Any:
    """Not autocommit."""
    place = make_url(url)
    if place.get_backend_name() == "postgresql":
        import psycopg

        plain = place.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(plain, connect_timeout=5)
    from bench.raw_mysql import connect

    connection = connect(url)
    connection.autocommit(False)
    return connection
