"""From the first schema to the second and back, with events in flight, and by an `init` that is killed at each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from pillarbox.errors import InitBusy, SchemaMismatch, TablesMissing
from pillarbox.event.event import Event
from pillarbox.outbox import Outbox
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.ports import Sent, Settlement
from pillarbox.store import engines, view
from pillarbox.store.ddl import ddl, scripts
from pillarbox.store.engines import check_schema, relay_engine
from pillarbox.store.inspect import overview
from pillarbox.store.install import downgrade, install
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.store.schema import VERSION_TABLE, outbox_metadata
from tests.integration.outbox.test_install import on, run_script

AGO = {
    "postgresql": "clock_timestamp() - interval '1 minute'",
    "mysql": "UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE",
    "sqlite": "strftime('%Y-%m-%d %H\\:%M\\:%f', 'now', '-1 minute')",
}
LATER = {
    "postgresql": "clock_timestamp() + interval '1 hour'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
    "sqlite": "strftime('%Y-%m-%d %H\\:%M\\:%f', 'now', '+1 hour')",
}
# The statements of the first release's writers and relays.
OLD_EVENT = (
    "INSERT INTO outbox_event (event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key,"
    " occurred_at, headers, content_type, payload, destination, routing_key, more_destinations, recorded_at) VALUES"
    " (:name, 't', 1, NULL, NULL, :name, {now}, NULL, 'text/plain', :payload, 'orders', NULL, NULL, {now})"
)
OLD_READY = (
    "INSERT INTO outbox_ready (partition_no, id, dest, lane) SELECT :partition_no, id, 0, :lane"
    " FROM outbox_event WHERE event_id = :name"
)
OLD_PARKED = (
    "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, error, error_at)"
    " SELECT partition_no, lane, id, dest, '{state}', {due}, 3, 'refused', {now} FROM outbox_ready"
    " WHERE id = (SELECT id FROM outbox_event WHERE event_id = :name)"
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    found = relay_engine(database_url)
    yield found
    found.dispose()


def first_schema(engine: Engine) -> None:
    """The tables as the first release made them."""
    directory = scripts("outbox")
    options: dict[str, Any] = {
        "version_table": VERSION_TABLE,
        "transactional_ddl": False,
        "fn": lambda revision, _context: directory._upgrade_revs("0001", revision),
    }
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts=options)
        context.run_migrations(op=Operations(context))
        connection.exec_driver_sql(view.create(engine.dialect.name, partition_table=False))


def put(engine: Engine, name: str) -> None:
    """One event, as the first release writes it."""
    now, lane = AGO[engine.dialect.name], lane_of(name)
    with engine.begin() as connection:
        connection.execute(text(OLD_EVENT.format(now=now)), {"name": name, "payload": b"x"})
        connection.execute(text(OLD_READY), {"name": name, "lane": lane, "partition_no": partition_of(lane)})


def run(engine: Engine, sql: str, **values: object) -> None:
    with engine.begin() as connection:
        connection.execute(text(sql), values)


def park(engine: Engine, name: str, state: str, due: str = "NULL") -> None:
    put(engine, name)
    run(engine, OLD_PARKED.format(state=state, due=due, now=AGO[engine.dialect.name]), name=name)
    run(engine, "DELETE FROM outbox_ready WHERE id = (SELECT id FROM outbox_event WHERE event_id = :name)", name=name)


def events_in_flight(engine: Engine) -> None:
    ago, later = AGO[engine.dialect.name], LATER[engine.dialect.name]
    for name in ("ready", "leased", "abandoned"):
        put(engine, name)
    for name, until in (("leased", later), ("abandoned", ago)):
        run(
            engine,
            f"UPDATE outbox_ready SET leased_until = {until}, owner = 'old', token = 5, claims = 1"
            " WHERE id = (SELECT id FROM outbox_event WHERE event_id = :name)",
            name=name,
        )
    park(engine, "retry", "RETRY", ago)
    park(engine, "later", "RETRY", later)
    park(engine, "dead", "DEAD")
    run(
        engine,
        "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token)"
        f" SELECT id, 0, {ago}, 'old', 4 FROM outbox_event WHERE event_id = 'dead'",
    )


def states(engine: Engine) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for name, state in connection.execute(text("SELECT event_id, status FROM outbox_status")):
            found.setdefault(name, set()).add(state)
    return found


def sent_by_row_lease(engine: Engine) -> list[str]:
    """The ids of what a relay of this release sends now."""
    store = RowLeaseStore(engine, relay_id="new", lease=30.0)
    store.move_due(100)
    claim = store.claim(100)
    settled = store.settle(Settlement(claim.token, sent=[Sent(one.key, 0, 1) for one in claim.deliveries]))
    assert not settled.lost
    return sorted(one.message.event_id for one in claim.deliveries)


def differences(engine: Engine) -> list[Any]:
    def ours(_item: Any, name: str | None, kind: str, *_rest: Any) -> bool:
        return kind != "table" or name in outbox_metadata.tables

    with engine.connect() as connection:
        options = {"compare_type": True, "include_object": ours}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), outbox_metadata))


def one(engine: Engine, sql: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(text(sql)).scalar_one()


IN_FLIGHT = {
    "ready": {"PENDING"},
    "leased": {"PROCESSING"},
    "abandoned": {"PENDING"},
    "retry": {"RETRY"},
    "later": {"RETRY"},
    "dead": {"DEAD", "SENT"},
}


def test_events_in_flight_survive_the_upgrade_and_go_out(engine: Engine) -> None:
    first_schema(engine)
    events_in_flight(engine)
    assert states(engine) == IN_FLIGHT
    assert install(engine, ["outbox"]) == ["Migrated the outbox from 0001 to 0002."]
    assert differences(engine) == []
    assert states(engine) == IN_FLIGHT
    with engine.connect() as connection:
        meta = connection.execute(text("SELECT * FROM outbox_meta")).mappings().one()
        partitions = connection.scalars(text("SELECT partition_no FROM outbox_partition ORDER BY partition_no")).all()
        check_schema(connection)
    assert dict(meta) == {
        "one": 1,
        "schema_version": 2,
        "partitions": 16,
        "hash_name": "sha256-60",
        "mode": "polling",
        "lease": "row",
    }
    assert partitions == list(range(16))
    assert sent_by_row_lease(engine) == ["abandoned", "ready", "retry"]
    run(engine, f"UPDATE outbox_ready SET leased_until = {AGO[engine.dialect.name]}")
    assert sent_by_row_lease(engine) == ["leased"]


def test_the_way_back_makes_retries_of_what_the_first_schema_does_not_know(engine: Engine) -> None:
    install(engine, ["outbox"])
    ago, later = AGO[engine.dialect.name], LATER[engine.dialect.name]
    put(engine, "ready")
    for name, state, due in (
        ("retry", "RETRY", later),
        ("held", "HELD", "NULL"),
        ("scheduled", "SCHEDULED", later),
        ("buried", "BURIED", "NULL"),
        ("dead", "DEAD", "NULL"),
    ):
        park(engine, name, state, due)
    run(
        engine,
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
        f" VALUES (1, 17, 5, 'dead', 1, {ago}, 'orders', 'refused')",
    )
    assert downgrade(engine, "0001") == "Took the outbox back from 0002 to 0001."
    assert {name: state for name, (state,) in states(engine).items()} == {
        "ready": "PENDING",
        "retry": "RETRY",
        "held": "RETRY",
        "scheduled": "RETRY",
        "buried": "DEAD",
        "dead": "DEAD",
    }
    assert not set(inspect(engine).get_table_names()) & {"outbox_partition", "outbox_lane", "outbox_relay"}
    columns = {column["name"] for column in inspect(engine).get_columns("outbox_parked")}
    assert not columns & {"claims", "target"}
    assert one(engine, "SELECT schema_version FROM outbox_meta") == 1
    put(engine, "written by the old release")
    assert downgrade(engine, "0001") == "The outbox is at revision 0001; nothing to take back."
    assert install(engine, ["outbox"]) == ["Migrated the outbox from 0001 to 0002."]
    assert differences(engine) == []
    assert sent_by_row_lease(engine) == ["held", "ready", "written by the old release"]


@on("sqlite", "postgres", "mysql", "mysql57", "mariadb102")
def test_an_upgrade_or_a_way_back_that_is_killed_at_each_statement_is_finished_by_the_next_one(engine: Engine) -> None:
    first_schema(engine)
    events_in_flight(engine)
    assert until_done(engine, lambda: install(engine, ["outbox"])) > 6
    assert differences(engine) == []
    assert one(engine, "SELECT count(*) FROM outbox_partition") == 16
    assert states(engine) == IN_FLIGHT
    assert until_done(engine, lambda: [downgrade(engine, "0001")]) > 5
    assert one(engine, "SELECT schema_version FROM outbox_meta") == 1
    assert not inspect(engine).has_table("outbox_lane")
    assert states(engine) == IN_FLIGHT


class Killed(Exception):
    pass


def until_done(engine: Engine, work: Callable[[], Sequence[str]]) -> int:
    """Run it again and again, each time killed one changing statement later; returns how often."""
    for kills in range(60):
        with killed_after(engine, kills):
            try:
                work()
            except Killed:
                continue
            return kills
    raise AssertionError("it never ends")


@contextmanager
def killed_after(engine: Engine, statements: int) -> Iterator[None]:
    left = [statements]

    def count(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().split(" ", 1)[0].upper() in ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE"):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    event.listen(engine, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", count)


@on("mysql", "sqlite")
def test_init_after_a_way_back_that_was_killed_says_that_it_must_be_finished_first(engine: Engine) -> None:
    install(engine, ["outbox"])
    run(engine, "DROP VIEW outbox_status")
    run(engine, "DROP TABLE outbox_relay")
    with pytest.raises(SchemaMismatch, match=r"PB-007.*--downgrade.*did not finish"):
        install(engine, ["outbox"])
    assert downgrade(engine, "0001").startswith("Took the outbox back")


@on("mysql", "sqlite")
def test_an_init_that_was_killed_before_the_view_was_there_is_finished_by_the_next_one(engine: Engine) -> None:
    install(engine, ["outbox"])
    run(engine, "DROP VIEW outbox_status")
    install(engine, ["outbox"])
    assert one(engine, "SELECT count(*) FROM outbox_status") == 0


@on("sqlite", "postgres", "mysql")
def test_a_foreign_table_with_a_name_of_the_second_schema_stops_the_upgrade(engine: Engine) -> None:
    first_schema(engine)
    run(engine, "CREATE TABLE outbox_relay (name VARCHAR(10) PRIMARY KEY)")
    with pytest.raises(SchemaMismatch, match=r"outbox_relay already.*host"):
        install(engine, ["outbox"])
    assert one(engine, "SELECT schema_version FROM outbox_meta") == 1


def test_old_tables_and_a_new_release_refuse_each_other_clearly(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_schema(engine)
    with engine.connect() as connection, pytest.raises(SchemaMismatch, match=r"version 1, this release works with 2"):
        check_schema(connection)
    with engine.connect() as connection, pytest.raises(SchemaMismatch, match=r"PB-007.*init"):
        Outbox(engine).add(connection, Event({}, type="t"), to="orders")
    install(engine, ["outbox"])
    monkeypatch.setattr(engines, "SCHEMA_VERSION", 1)
    with engine.connect() as connection, pytest.raises(SchemaMismatch, match=r"version 2, this release works with 1"):
        check_schema(connection)


def test_writers_of_the_first_release_keep_working_on_the_new_tables(engine: Engine) -> None:
    install(engine, ["outbox"])
    put(engine, "from an old writer")
    park(engine, "parked by an old relay", "RETRY", AGO[engine.dialect.name])
    assert sent_by_row_lease(engine) == ["from an old writer", "parked by an old relay"]


@on("sqlite", "postgres", "mysql")
def test_nothing_is_taken_back_under_living_relays(engine: Engine) -> None:
    with pytest.raises(TablesMissing):
        downgrade(engine, "0001")
    install(engine, ["outbox"])
    later = LATER[engine.dialect.name]
    run(engine, f"INSERT INTO outbox_relay VALUES ('relay-7', {later}, 'partition', '0.2', 'host', {later})")
    with pytest.raises(InitBusy, match=r"PB-009.*relay-7.*[Ss]top them"):
        downgrade(engine, "0001")
    with pytest.raises(SchemaMismatch, match="'0099'"):
        downgrade(engine, "0099")
    run(engine, f"UPDATE outbox_relay SET seen_until = {AGO[engine.dialect.name]}")
    assert downgrade(engine, "0001").startswith("Took the outbox back")


def test_the_printed_upgrade_runs_as_it_is_on_old_tables(engine: Engine, database_url: str, database_name: str) -> None:
    first_schema(engine)
    put(engine, "in flight")
    name = "mariadb" if database_name.startswith("mariadb") else engine.dialect.name
    script = ddl(name, ["outbox"], since="0001")
    assert "outbox_event (" not in script
    engine.dispose()
    run_script(database_url, script)
    assert install(engine, ["outbox"]) == ["The outbox is up to date (revision 0002)."]
    assert differences(engine) == []
    assert sent_by_row_lease(engine) == ["in flight"]


WRONG = "INSERT INTO outbox_ready (partition_no, id, dest, lane) VALUES ({partition_no}, 5000, 0, {lane})"


@on("postgres", "mysql", "mariadb", "mariadb102")
def test_the_server_refuses_a_writer_with_another_number_of_partitions_or_another_hash(engine: Engine) -> None:
    install(engine, ["outbox"])
    for partition_no, lane in ((23, 23), (7, 24), (1, -1)):
        with pytest.raises(DBAPIError, match="outbox_ready_partition"):
            run(engine, WRONG.format(partition_no=partition_no, lane=lane))
    run(engine, WRONG.format(partition_no=7, lane=23))


@on("sqlite", "mysql57")
def test_where_the_server_cannot_refuse_them_misplaced_rows_are_counted(engine: Engine) -> None:
    install(engine, ["outbox"])
    put(engine, "right")
    run(engine, WRONG.format(partition_no=23, lane=23))
    with engine.connect() as connection:
        counts = overview(connection).counts
    assert (counts["PENDING"], counts["MISPLACED"]) == (1, 1)


def test_rows_that_stand_in_a_wrong_partition_are_put_right_by_the_upgrade(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite cannot add a constraint")
    first_schema(engine)
    put(engine, "moved")
    run(engine, "UPDATE outbox_ready SET partition_no = 99")
    install(engine, ["outbox"])
    assert one(engine, "SELECT partition_no FROM outbox_ready") == partition_of(lane_of("moved"))


@on("postgres", "mysql", "mariadb102")
def test_a_writer_that_knows_an_old_number_of_partitions_is_told_to_start_again(engine: Engine) -> None:
    """The number was changed, with the constraint, while this one ran."""
    install(engine, ["outbox"])
    outbox = Outbox(engine)
    with engine.begin() as connection:
        outbox.add(connection, Event({}, type="t", key="a"), to="orders")
    run(engine, "DELETE FROM outbox_ready")
    drop = (
        "CHECK" if engine.dialect.name == "mysql" and not getattr(engine.dialect, "is_mariadb", False) else "CONSTRAINT"
    )
    run(engine, f"ALTER TABLE outbox_ready DROP {drop} outbox_ready_partition")
    check = "ADD CONSTRAINT outbox_ready_partition CHECK (partition_no = MOD(lane, 64))"
    run(engine, f"ALTER TABLE outbox_ready {check}")
    run(engine, "UPDATE outbox_meta SET partitions = 64")
    run(engine, "INSERT INTO outbox_partition (partition_no) VALUES (63)")
    key = next(str(n) for n in range(100) if lane_of(str(n)) % 64 >= 16)
    with engine.connect() as connection, pytest.raises(SchemaMismatch, match=r"PB-007.*partitions.*[Rr]estart"):
        outbox.add(connection, Event({}, type="t", key=key), to="orders")
    with engine.begin() as connection:
        Outbox().add(connection, Event({}, type="t", key=key), to="orders")
    run(engine, "UPDATE outbox_partition SET partition_no = :number WHERE partition_no = 63", number=lane_of(key) % 64)
    assert [*states(engine).values()].count({"PENDING"}) == 1, "and not ORPHAN, too"
