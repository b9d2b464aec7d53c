"""Rows examined, not only the plan: claims and due moves read one ordered index range, whatever stands around it."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy import event as sqlalchemy_event

from pillarbox.ports import Parked, Sent, WorkKey
from pillarbox.store import parked
from pillarbox.store.capabilities import detect
from pillarbox.store.claim import Wanted, strategy
from pillarbox.store.workrows import Fence, work_rows
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_outbox import SqlOutbox

CROWD = 100_000
BATCH = 500
IN_FLIGHT = 300

pytestmark = pytest.mark.services
on_mysql = pytest.mark.parametrize("crowded", [name for name in DATABASES if name != "postgres"], indirect=True)
on_postgres = pytest.mark.parametrize("crowded", ["postgres"], indirect=True)


@pytest.fixture(scope="module")
def crowded(request: pytest.FixtureRequest) -> Iterator[SqlOutbox]:
    """100,000 pending rows, of which the first 300 are in flight; as many dead ones. To be tried again are 100
    now and 20,000 later, and as many are scheduled; 20,000 keys are held."""
    with fresh_database(_need(request, request.param).url) as url:
        outbox = SqlOutbox(url)
        with outbox.engine.begin() as connection:
            crowd(connection)
        yield outbox
        outbox.close()


def crowd(connection: Connection) -> None:
    postgres = connection.dialect.name == "postgresql"
    if postgres:  # analysed while it was empty, and not since: what a queue's statistics look like after a quiet night
        for table in ("outbox_ready", "outbox_parked"):
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        connection.exec_driver_sql("ANALYZE")
    moments = ("timestamptz '2000-01-01'", "timestamptz '2100-01-01'") if postgres else ("'2000-01-01'", "'2100-01-01'")
    ready = "INSERT INTO outbox_ready (partition_no, id, dest, lane) "
    dead = "INSERT INTO outbox_parked (partition_no, id, dest, lane, state, due_at, attempts, error, error_at) "
    connection.exec_driver_sql(f"{ready} VALUES (1, 1, 0, 1)")
    size = 1
    while size < CROWD:
        grow = min(size, CROWD - size)
        connection.exec_driver_sql(
            f"{ready} SELECT (id + {size}) %% 16, id + {size}, 0, id + {size} FROM outbox_ready WHERE id <= {grow}"
        )
        size += grow
    row = (
        "SELECT partition_no, id + {offset}, 0, lane, '{state}', {due}, 1, '', {past} FROM outbox_ready WHERE id <= {n}"
    )
    for offset, state, due, n in (
        (1_000_000, "DEAD", "NULL", CROWD),
        (2_000_000, "RETRY", moments[1], 20_000),
        (3_000_000, "RETRY", moments[0], 100),
        (4_000_000, "SCHEDULED", moments[1], 20_000),
        (5_000_000, "SCHEDULED", moments[0], 100),
    ):
        connection.exec_driver_sql(dead + row.format(offset=offset, state=state, due=due, past=moments[0], n=n))
    connection.exec_driver_sql(
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
        f" SELECT partition_no, lane, 7, 'dead', 1, {moments[0]}, '', '' FROM outbox_ready WHERE id <= 20000"
    )
    first = sorted(
        connection.exec_driver_sql("SELECT id FROM outbox_ready WHERE partition_no = 0 AND id <= 4800").scalars()
    )
    numbers = ",".join(map(str, first[:IN_FLIGHT]))
    connection.exec_driver_sql(f"UPDATE outbox_ready SET leased_until = {moments[1]} WHERE id IN ({numbers})")


FENCE = Fence("relay", 7)


def claimed(connection: Connection) -> list[WorkKey]:
    rows = strategy(detect(connection).claim).claim(connection, Wanted(FENCE, 60.0, 0, BATCH))
    assert len(rows) == BATCH
    return [WorkKey._make(row[:3]) for row in rows]


def spread(connection: Connection) -> list[WorkKey]:
    """Rows of all partitions, claimed."""
    fence = f"owner = '{FENCE.owner}', token = {FENCE.token}"
    connection.exec_driver_sql(f"UPDATE outbox_ready SET {fence} WHERE id BETWEEN 50000 AND {50_000 + BATCH - 1}")
    return sorted(WorkKey(number % 16, number, 0) for number in range(50_000, 50_000 + BATCH))


Action = Callable[[Connection], object]


def actions(connection: Connection) -> Iterator[tuple[str, Action, int]]:
    """Name, what to do, and how many rows it may examine."""
    server, rows = detect(connection), work_rows(connection.dialect.name)
    # Finding the rows, and going to each once more to change it; compare-and-set reads them a second time.
    passes = 2 if server.claim == "compare-and-set" else 1
    yield "claim", claimed, passes * (BATCH + IN_FLIGHT) + 2 * BATCH
    keys = spread(connection)
    yield "renew", lambda c: rows.extend(c, keys, FENCE, 60.0), 2 * BATCH
    yield "ours", lambda c: rows.ours(c, keys, FENCE), 2 * BATCH
    yield "give back", lambda c: rows.give_back(c, keys, FENCE), 2 * BATCH
    keys = spread(connection)
    yield "remove", lambda c: rows.remove(c, keys, FENCE), 2 * BATCH
    yield "receipts", lambda c: rows.add_receipts(c, [Sent(key, None, None) for key in keys], FENCE, again=False), BATCH
    yield "receipts found", lambda c: rows.with_receipt(c, keys, FENCE), 2 * BATCH
    left = [Parked(key, key.id, "RETRY", 1e9, 1, "") for key in keys]
    yield "park", lambda c: rows.add_parked(c, left), 2 * BATCH
    yield "parked found", lambda c: rows.are_parked(c, left), 2 * BATCH
    yield "move due", lambda c: parked.move_due(c, server, 50), 8 * 50
    yield "move all that is due", lambda c: parked.move_due(c, server, 500), 9 * 150
    yield "nothing due", lambda c: parked.move_due(c, server, 500), 50


@on_mysql
def test_no_statement_examines_more_rows_than_its_batch_on_mysql(crowded: SqlOutbox) -> None:
    """C046, C082: by the server's own counters."""
    examined: dict[str, tuple[int, int]] = {}
    with crowded.engine.connect() as connection:
        for name, act, most in actions(connection):
            before = handler_reads(connection)
            act(connection)
            examined[name] = (handler_reads(connection) - before, most)
        connection.rollback()
    assert {name: found for name, found in examined.items() if found[0] > found[1] + 20} == {}


@on_postgres
def test_no_statement_examines_more_rows_than_its_batch_on_postgresql(crowded: SqlOutbox) -> None:
    """C046, C082: by EXPLAIN ANALYZE of the very statements, with statistics that say the tables are empty."""
    examined: dict[str, tuple[int, int]] = {}
    with crowded.engine.connect() as connection:
        for name, act, most in actions(connection):
            statements = statements_of(crowded, connection, act)
            examined[name] = (sum(rows_examined(connection, *one) for one in statements), most)
        connection.rollback()
    assert {name: found for name, found in examined.items() if found[0] > found[1] + 20} == {}


def handler_reads(connection: Connection) -> int:
    rows = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    return sum(int(value) for _, value in rows)


def statements_of(outbox: SqlOutbox, connection: Connection, act: Action) -> list[tuple[str, Any]]:
    """What ``act`` executes. It is undone, so that EXPLAIN ANALYZE meets the same rows."""
    heard: list[tuple[str, Any]] = []

    def listen(conn: object, cursor: object, statement: str, parameters: Any, *rest: object) -> None:
        if re.match("WITH|SELECT [^s]|INSERT|UPDATE|DELETE", statement):
            heard.append((statement, parameters))

    sqlalchemy_event.listen(outbox.engine, "before_cursor_execute", listen)
    with connection.begin_nested() as savepoint:
        act(connection)
        savepoint.rollback()
    sqlalchemy_event.remove(outbox.engine, "before_cursor_execute", listen)
    assert heard
    return heard


def rows_examined(connection: Connection, statement: str, parameters: Any) -> int:
    plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]

    def scans(node: dict[str, Any]) -> Iterator[int]:
        if node["Node Type"] in {"Seq Scan", "Index Scan", "Index Only Scan", "Tid Scan", "Bitmap Heap Scan"}:
            yield (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for child in node.get("Plans", []):
            yield from scans(child)

    return sum(scans(top))
