"""Consuming as one would write it by hand for one driver: decode, mark, one row of effect, commit. No checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pymysql
from sqlalchemy import make_url

from pillarbox.ports import Incoming

CONSUMER = "raw"
MARK = "INSERT INTO inbox_event (consumer, event_id, applied_at) VALUES (%s, %s, {now})"
EFFECT = "INSERT INTO bench_effect (event_id, total) VALUES (%s, %s)"
MARKS_POSTGRES = (
    "INSERT INTO inbox_event (consumer, event_id, applied_at) SELECT %s, one, clock_timestamp()"
    " FROM unnest(%s::varchar[]) AS one ON CONFLICT (consumer, event_id) DO NOTHING RETURNING event_id"
)
EFFECTS_POSTGRES = "INSERT INTO bench_effect (event_id, total) SELECT * FROM unnest(%s::varchar[], %s::int[])"
NEW = " ON CONFLICT (consumer, event_id) DO NOTHING RETURNING 1"


def consume(url: str, messages: Sequence[Incoming], batch: int) -> None:
    """All messages, ``batch`` of them in each transaction; 1 means one by one, with its own statements."""
    postgres = make_url(url).get_backend_name() == "postgresql"
    apply: dict[tuple[bool, bool], Callable[[Any, Sequence[Incoming]], None]] = {
        (True, False): _one_on_postgres,
        (True, True): _many_on_postgres,
        (False, False): _one_on_mysql,
        (False, True): _many_on_mysql,
    }
    step = apply[postgres, batch > 1]
    with closing(_connect(url)) as connection:
        cursor = connection.cursor()
        for some in _slices(messages, batch):
            step(cursor, some)
            connection.commit()


def _connect(url: str) -> Any:
    found = make_url(url)
    if found.get_backend_name() == "postgresql":
        return psycopg.connect(found.set(drivername="postgresql").render_as_string(hide_password=False))
    connection = pymysql.connect(
        host=found.host,
        port=found.port or 3306,
        user=found.username,
        password=found.password or "",
        database=found.database,
    )
    connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


def _one_on_postgres(cursor: Any, messages: Sequence[Incoming]) -> None:
    (message,) = messages
    event_id = message.headers["id"]
    if cursor.execute(MARK.format(now="clock_timestamp()") + NEW, (CONSUMER, event_id)).fetchone():
        cursor.execute(EFFECT, (event_id, json.loads(message.body)["total"]))


def _many_on_postgres(cursor: Any, messages: Sequence[Incoming]) -> None:
    payloads = {message.headers["id"]: json.loads(message.body)["total"] for message in messages}
    new = [row[0] for row in cursor.execute(MARKS_POSTGRES, (CONSUMER, list(payloads))).fetchall()]
    cursor.execute(EFFECTS_POSTGRES, (new, [payloads[one] for one in new]))


def _one_on_mysql(cursor: Any, messages: Sequence[Incoming]) -> None:
    (message,) = messages
    event_id = message.headers["id"]
    cursor.execute(MARK.format(now="UTC_TIMESTAMP(6)"), (CONSUMER, event_id))  # a duplicate would be an error to catch
    cursor.execute(EFFECT, (event_id, json.loads(message.body)["total"]))


def _many_on_mysql(cursor: Any, messages: Sequence[Incoming]) -> None:
    payloads = {message.headers["id"]: json.loads(message.body)["total"] for message in messages}
    cursor.executemany(MARK.format(now="UTC_TIMESTAMP(6)"), [(CONSUMER, one) for one in payloads])
    cursor.executemany(EFFECT, list(payloads.items()))


def _slices(messages: Sequence[Incoming], size: int) -> Iterator[Sequence[Incoming]]:
    for start in range(0, len(messages), size):
        yield messages[start : start + size]
