"""Rows examined by each statement of a pruner, over many rows that cannot go: no more than its batch."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from pillarbox.policy.retention import Keep
from pillarbox.store.capabilities import detect
from pillarbox.store.prune.bounds import Bounds, bounds
from pillarbox.store.prune.dead import ended_after, removable_ended
from pillarbox.store.prune.removal import remove_events, remove_receipts
from pillarbox.store.prune.sent import receipts_after, removable
from pillarbox.store.prune.settling import remove_sent
from pillarbox.store.prune.words import words_of
from tests.integration.store.test_plans import Action, handler_reads, rows_examined, statements_of
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_outbox import SqlOutbox

CROWD = 32_768
BATCH = 500
LOOK_UPS = 200  # the ends of ranges in 16 partitions and 5 states, and the bisection

pytestmark = pytest.mark.services
on_mysql = pytest.mark.parametrize("crowded", [name for name in DATABASES if name != "postgres"], indirect=True)
on_postgres = pytest.mark.parametrize("crowded", ["postgres"], indirect=True)


@pytest.fixture(scope="module")
def crowded(request: pytest.FixtureRequest) -> Iterator[SqlOutbox]:
    """In the order of their ids: 32,768 dead events, as many sent ones, as many pending ones; statistics know none."""
    with fresh_database(_need(request, request.param).url) as url:
        outbox = SqlOutbox(url)
        with outbox.engine.begin() as connection:
            crowd(connection)
        yield outbox
        outbox.close()


def crowd(connection: Connection) -> None:
    say = connection.exec_driver_sql
    past = "timestamptz '2000-01-01'" if connection.dialect.name == "postgresql" else "'2000-01-01'"
    if connection.dialect.name == "postgresql":
        for table in ("outbox_event", "outbox_ready", "outbox_parked", "outbox_receipt"):
            say(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        say("ANALYZE")
    columns = "id, event_id, event_type, schema_version, destination, content_type, payload, occurred_at, recorded_at"
    say(f"INSERT INTO outbox_event ({columns}) VALUES (1, 'e1', 'x', 1, 'orders', 'text/plain', 'p', {past}, {past})")
    size = 1
    while size < 4 * CROWD:
        say(
            f"INSERT INTO outbox_event ({columns}) SELECT id + {size}, CONCAT('e', id + {size}), event_type, 1,"
            " destination, content_type, payload, occurred_at, recorded_at FROM outbox_event"
        )
        size *= 2
    first, second, third = (f"id > {n * CROWD} AND id <= {(n + 1) * CROWD}" for n in range(3))
    say(
        "INSERT INTO outbox_parked (partition_no, id, dest, lane, state, due_at, attempts, error, error_at)"
        f" SELECT id %% 16, id, 0, id, 'DEAD', NULL, 1, '', {past} FROM outbox_event WHERE {first}"
    )
    say(
        f"INSERT INTO outbox_receipt (id, dest, sent_at, relay, token) SELECT id, 0, {past}, 'r', 1 FROM outbox_event"
        f" WHERE {second}"
    )
    say(
        "INSERT INTO outbox_ready (partition_no, id, dest, lane)"
        f" SELECT id %% 16, id, 0, id FROM outbox_event WHERE {third}"
    )


def actions(connection: Connection) -> Iterator[tuple[str, Action, int]]:
    """Name, what to do, and how many rows it may examine; MySQL counts the list of keys itself twice."""
    words = words_of(detect(connection))
    found: list[Bounds] = []

    yield "bounds", lambda c: found.append(bounds(c, words, Keep(0, 0))), LOOK_UPS
    limits = found[0]
    yield "walk", lambda c: receipts_after(c, words, 0, limits, BATCH), BATCH
    seen = receipts_after(connection, words, 0, limits, BATCH)
    assert (len(seen), seen[0].id) == (BATCH, CROWD + 1)
    yield "lock and look", lambda c: removable(c, words, seen, limits, lock=True), 3 * BATCH + LOOK_UPS
    ids = [one.id for one in removable(connection, words, seen, limits, lock=True).events]
    assert len(ids) == BATCH
    yield "remove events", lambda c: remove_events(c, words, ids), 6 * BATCH
    yield "remove receipts", lambda c: remove_receipts(c, words, dict.fromkeys(ids, 1)), 4 * BATCH
    yield "remove at settlement", lambda c: remove_sent(c, words, [(n, 0) for n in ids], 16), 8 * BATCH + 2
    yield "walk the dead", lambda c: ended_after(c, words, "DEAD", 0, limits, BATCH), BATCH
    dead = [number for number, _ in ended_after(connection, words, "DEAD", 0, limits, BATCH)]
    yield "lock the dead", lambda c: removable_ended(c, words, dead, limits, lock=True), 12 * BATCH + LOOK_UPS


@on_mysql
def test_no_statement_examines_more_rows_than_its_batch_on_mysql(crowded: SqlOutbox) -> None:
    """C046: by the server's own counters."""
    examined: dict[str, tuple[int, int]] = {}
    with crowded.engine.connect() as connection:
        for name, act, most in actions(connection):
            before = handler_reads(connection)
            with connection.begin_nested() as savepoint:
                act(connection)
                savepoint.rollback()
            examined[name] = (handler_reads(connection) - before, most)
        connection.rollback()
    assert {name: found for name, found in examined.items() if found[0] > found[1] + 20} == {}


@on_postgres
def test_no_statement_examines_more_rows_than_its_batch_on_postgresql(crowded: SqlOutbox) -> None:
    """C046: by EXPLAIN ANALYZE of the very statements, with statistics that say the tables are empty."""
    examined: dict[str, tuple[int, int]] = {}
    with crowded.engine.connect() as connection:
        for name, act, most in actions(connection):
            statements = [
                one for one in statements_of(crowded, connection, act) if "CAST(clock_timestamp" not in one[0]
            ]
            examined[name] = (sum(rows_examined(connection, *one) for one in statements), most)
        connection.rollback()
    assert {name: found for name, found in examined.items() if found[0] > found[1] + 20} == {}
