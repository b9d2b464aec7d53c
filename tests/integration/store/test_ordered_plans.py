"""The partition lease's hot statements read what they need and no more, whatever lies around and statistics say."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy import event as sqlalchemy_event

from pillarbox.policy.lanes import lane_of
from pillarbox.ports import Span
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.ordered.unheld import PAGE
from pillarbox.testing.conformance.ordered_store_world import Owner, hold_on, set_aside, stream_of
from pillarbox.testing.conformance.store_world import event as message
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_ordered import OrderedOutbox

CROWD = 20_000
BATCH = 200
ROUND = 40  # how many rows any of these statements is about, at most, apart from the read

pytestmark = pytest.mark.services


class Crowded:
    """20,000 ready rows, as many dead ones and held ones under 1,000 holds, 2,000 not due; and what the test adds."""

    def __init__(self, url: str) -> None:
        self.outbox = OrderedOutbox(url)
        self.dialect = self.outbox.dialect
        self.engine = relay_engine(url)
        with self.outbox.engine.begin() as connection:
            crowd(connection)
        self.store = PartitionStore(self.engine, relay_id="a", lease=600.0)
        self.store.enter(600.0)
        self.relay = Owner(self.store, 600.0)
        self.relay.acquire()
        self.spans = [Span(number, 0) for number in range(16)]
        self.store.read(self.spans, BATCH, 10**7, ())

    def close(self) -> None:
        self.store.close()
        self.outbox.close()


@pytest.fixture(scope="module", params=DATABASES)
def crowded(request: pytest.FixtureRequest) -> Iterator[Crowded]:
    with fresh_database(_need(request, request.param).url) as url:
        place = Crowded(url)
        yield place
        place.close()


def crowd(connection: Connection) -> None:
    postgres = connection.dialect.name == "postgresql"
    if postgres:  # analysed while it was empty, and not since: what a queue's statistics look like after a quiet night
        for table in ("outbox_ready", "outbox_parked", "outbox_event", "outbox_lane"):
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        connection.exec_driver_sql("ANALYZE")
    past, future = "'2000-01-01'", "'2100-01-01'"
    if postgres:
        past, future = f"timestamptz {past}", f"timestamptz {future}"
    columns = "id, event_id, event_type, schema_version, destination, content_type, payload, occurred_at, recorded_at"
    rest = f"'t', 1, 'things', 'text/plain', 'x', {past}, {past}"
    into_events = f"INSERT INTO outbox_event ({columns})"
    connection.exec_driver_sql(f"{into_events} VALUES (1, 'e1', {rest})")
    size = 1
    while size < 3 * CROWD:
        grow = min(size, 3 * CROWD - size)
        more = f"SELECT id + {size}, CONCAT('e', id + {size}), {rest} FROM outbox_event WHERE id <= {grow}"
        connection.exec_driver_sql(f"{into_events} {more}")
        size += grow
    if postgres:
        connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('outbox_event', 'id'), {3 * CROWD + 1})")
    target = lane_of("things")
    connection.exec_driver_sql(
        "INSERT INTO outbox_ready (partition_no, id, dest, lane)"
        f" SELECT id %% 16, id, 0, id FROM outbox_event WHERE id <= {CROWD}"
    )
    parked = (
        "INSERT INTO outbox_parked (partition_no, id, dest, lane, state, due_at, attempts, target, error, error_at) "
    )
    for first, state, due, count, lane in (
        (CROWD, "DEAD", "NULL", CROWD, "id"),
        (2 * CROWD, "HELD", "NULL", CROWD - 2_000, f"{CROWD + 16} + id %% 976"),
        (3 * CROWD - 2_000, "RETRY", future, 2_000, "id"),
    ):
        connection.exec_driver_sql(
            f"{parked} SELECT id %% 16, id, 0, {lane}, '{state}', {due}, 1, {target}, '', {past}"
            f" FROM outbox_event WHERE id > {first} AND id <= {first + count}"
        )
    connection.exec_driver_sql(
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
        f" SELECT id %% 16, id, {target}, 'dead', id, {past}, 'things', '' FROM outbox_event"
        f" WHERE id > {CROWD} AND id <= {CROWD + 1_000}"
    )


Action = Callable[[], object]


def actions(place: Crowded) -> Iterator[tuple[str, Action, int]]:
    """Name, what to do, and how many rows it may examine beyond a fixed few."""
    store, relay, spans = place.store, place.relay, place.spans
    yield "read", lambda: store.read(spans, BATCH, 10**7, ()), 2 * BATCH
    yield "read far on", lambda: store.read([Span(n, CROWD - 640) for n in range(16)], BATCH, 10**7, ()), 2 * BATCH
    yield "signs", lambda: store.signs(spans), 16
    yield "signs of nothing", lambda: store.signs([Span(n, 10**9) for n in range(16)]), 0
    pages = 16 * PAGE * 5  # rows, twice through MySQL's temporary tables, and two looks for the hold of each
    yield "stragglers", lambda: store.stragglers([Span(n, 50) for n in range(16)]), 16 + pages
    yield "stragglers of nothing", lambda: store.stragglers(spans), pages
    yield "nothing due", lambda: store.move_due(relay.tenures, ROUND), 0
    place.outbox.add([message(key="one") for _ in range(ROUND)])
    own = list(store.read([Span(n, 3 * CROWD) for n in range(16)], BATCH, 10**7, ()).deliveries)
    assert len(own) == ROUND
    holds = [hold_on(own[0], "backoff", 1e9)]
    yield "park", lambda: relay.settle(aside=[set_aside(one, "HELD") for one in own], holds=holds), 4 * ROUND
    stream = stream_of(own[0])
    yield "read parked", lambda: store.read_parked(stream, None, ROUND, 10**7), 2 * ROUND
    yield "drain", lambda: relay.settle(sent_parked=own, freed=[stream]), 3 * ROUND
    found = list(store.read(spans, ROUND, 10**7, ()).deliveries)
    yield "settle", lambda: relay.settle(sent=found), 3 * ROUND
    found = list(store.read(spans, ROUND, 10**7, ()).deliveries)
    yield "set aside", lambda: relay.settle(aside=[set_aside(one, "RETRY", 0.0) for one in found]), 3 * ROUND
    yield "move due", lambda: store.move_due(relay.tenures, ROUND), 5 * ROUND


SLACK = 120  # partitions, relays, the ends of ranges


def test_no_statement_examines_more_rows_than_it_is_about(crowded: Crowded) -> None:
    """C046, C082: by MySQL's own counters, and by EXPLAIN ANALYZE of the very statements on PostgreSQL."""
    examined: dict[str, tuple[int, int]] = {}
    for name, act, most in actions(crowded):
        count = examined_by(crowded, act)
        examined[name] = (count, most)
    assert {name: found for name, found in examined.items() if found[0] > found[1] + SLACK} == {}


def examined_by(place: Crowded, act: Action) -> int:
    if place.dialect == "postgresql":
        return sum(rows_examined(place, *one) for one in statements_of(place, act))
    before = handler_reads(place)
    act()
    return handler_reads(place) - before


def handler_reads(place: Crowded) -> int:
    """Of the store's own connection."""
    rows = place.store._database.read(
        lambda connection: connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    )
    return sum(int(value) for _, value in rows)


def statements_of(place: Crowded, act: Action) -> list[tuple[str, Any, Any]]:
    """What ``act`` executes, each with its plan, which is taken just before it runs."""
    heard: list[tuple[str, Any, Any]] = []

    def listen(connection: Connection, cursor: Any, statement: str, parameters: Any, *rest: object) -> None:
        if not re.match("WITH|SELECT|INSERT|UPDATE|DELETE", statement) or (heard and heard[-1][0] == "busy"):
            return
        if isinstance(parameters, list):  # an INSERT of many rows: it reads none
            return
        heard.append(("busy", None, None))
        driver = connection.connection.driver_connection
        with driver.transaction(force_rollback=True), driver.cursor() as own:
            own.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
            heard[-1] = (statement, parameters, own.fetchone()[0])

    sqlalchemy_event.listen(place.engine, "before_cursor_execute", listen)
    try:
        act()
    finally:
        sqlalchemy_event.remove(place.engine, "before_cursor_execute", listen)
    assert heard
    return heard


def rows_examined(place: Crowded, statement: str, parameters: Any, plan: Any) -> int:
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    assert "Seq Scan" not in json.dumps(top) or "outbox_ready" not in json.dumps(top["Node Type"]), statement

    def scans(node: dict[str, Any]) -> Iterator[int]:
        # Function and CTE scans are our own arrays.
        if node["Node Type"] in {"Seq Scan", "Index Scan", "Index Only Scan", "Tid Scan", "Bitmap Heap Scan"}:
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            yield round((node["Actual Rows"] + removed) * node["Actual Loops"])
        for child in node.get("Plans", []):
            yield from scans(child)

    return sum(scans(top))
