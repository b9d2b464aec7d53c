"""`init`: the tables and the view, on each server, alone or two at once, by the program or by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine, inspect, make_url, text
from sqlalchemy.event import listens_for

from pillarbox.errors import BadUrl, ConfigError, InitBusy, SchemaMismatch
from pillarbox.outbox import Outbox
from pillarbox.store.engines import sqlite_engine
from pillarbox.store.install import ddl, include_object, install
from pillarbox.store.schema import inbox_metadata, outbox_metadata
from tests.integration.outbox.shop import Base, event, events, new_name, open_engine

TABLES = {*outbox_metadata.tables, *inbox_metadata.tables, "outbox_alembic", "inbox_alembic"}


def on(*databases: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("database_name", databases, indirect=True)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    found = open_engine(database_url)
    yield found
    found.dispose()


def differences(engine: Engine, metadata: MetaData, **options: Any) -> list[Any]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))


def test_install_makes_what_schema_says_and_a_second_time_nothing(engine: Engine) -> None:
    assert install(engine) == ["Created the outbox (revision 0002).", "Created the inbox (revision 0002)."]
    assert set(inspect(engine).get_table_names()) == TABLES
    assert inspect(engine).get_view_names() == ["outbox_status"]

    whole = MetaData()
    for table in (*outbox_metadata.sorted_tables, *inbox_metadata.sorted_tables):
        table.to_metadata(whole)

    def ours(_item: Any, name: str | None, kind: str, *_rest: Any) -> bool:
        return kind != "table" or name not in {"outbox_alembic", "inbox_alembic"}

    assert differences(engine, whole, compare_type=True, include_object=ours) == []
    assert [line.split(" (")[0] for line in install(engine)] == ["The outbox is up to date", "The inbox is up to date"]


@on("sqlite")
def test_install_says_which_part_it_made(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="no part 'i', only outbox and inbox"):
        install(engine, "inbox")  # type: ignore[arg-type]
    assert install(engine, ["inbox"]) == ["Created the inbox (revision 0002)."]
    assert inspect(engine).has_table("inbox_event")
    assert not inspect(engine).has_table("outbox_event")
    assert install(engine)[0] == "Created the outbox (revision 0002)."


def test_of_two_installs_at_once_one_waits_and_both_succeed(database_url: str) -> None:
    """Also while an application writes its own tables."""
    together = threading.Barrier(2)

    def run() -> list[str]:
        engine = open_engine(database_url)
        try:
            with engine.connect() as warm:
                warm.execute(text("SELECT 1"))
            together.wait(10)
            return install(engine)
        finally:
            engine.dispose()

    with ThreadPoolExecutor(2) as pool:
        one, other = (pool.submit(run), pool.submit(run))
        said = sorted([one.result(60), other.result(60)])
    assert [lines[0].split(" (")[0] for lines in said] == ["Created the outbox", "The outbox is up to date"]


@on("mysql", "mysql57", "mariadb", "mariadb102")
def test_the_next_install_gets_the_lock_when_all_is_committed(engine: Engine, database_url: str) -> None:
    """Only DDL commits by itself: the inbox's revision, written last, was seen too late."""
    other, seen = open_engine(database_url), []

    @listens_for(engine, "before_cursor_execute")
    def look(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "RELEASE_LOCK" in statement:
            with other.connect() as connection:
                seen.append(connection.execute(text("SELECT version_num FROM inbox_alembic")).scalar())

    install(engine)
    other.dispose()
    assert seen == ["0002"]


@on("sqlite", "postgres", "mysql")
def test_an_install_that_waits_too_long_says_that_another_one_is_at_work(engine: Engine, database_url: str) -> None:
    name, other = engine.dialect.name, open_engine(database_url)
    with other.connect() as holder:
        if name == "postgresql":
            holder.execute(text(f"SELECT pg_advisory_xact_lock({0x70696C6C617262})"))
        elif name != "sqlite":  # there the connection's transaction is the lock
            lock = "CONCAT('pillarbox.', LEFT(SHA2(DATABASE(), 256), 40))"
            assert holder.execute(text(f"SELECT GET_LOCK({lock}, 1)")).scalar() == 1
        else:
            holder.execute(text("SELECT 1"))
        with pytest.raises(InitBusy, match=r"PB-009.*more than 0.6 s"):
            install(engine, deadline=0.6)
    other.dispose()
    assert install(engine)[0].startswith("Created")


@on("sqlite", "mysql", "mariadb102")
def test_an_install_that_was_killed_half_way_is_finished_by_the_next_one(engine: Engine) -> None:
    install(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP VIEW outbox_status"))
        connection.execute(text("DROP TABLE outbox_meta"))
        connection.execute(text("DROP TABLE outbox_replay"))
        on = " ON outbox_parked" if engine.dialect.name == "mysql" else ""
        connection.execute(text(f"DROP INDEX outbox_parked_state{on}"))
        connection.execute(text("DELETE FROM outbox_alembic"))
    assert install(engine)[0] == "Created the outbox (revision 0002)."
    assert set(inspect(engine).get_table_names()) == TABLES
    assert len(inspect(engine).get_indexes("outbox_parked")) == 2


@on("sqlite", "postgres", "mysql")
def test_a_foreign_table_of_one_of_our_names_is_refused_before_anything_is_made(engine: Engine) -> None:
    """As Debezium's outbox router would have it."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE outbox_event (id INTEGER PRIMARY KEY, payload VARCHAR(100))"))
    with pytest.raises(SchemaMismatch, match=r"PB-007.*outbox_event already.*event_id"):
        install(engine)
    assert inspect(engine).get_table_names() == ["outbox_event"]


@on("sqlite", "postgres")
def test_tables_of_a_newer_release_are_left_alone(engine: Engine) -> None:
    install(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox_alembic SET version_num = '0999'"))
    with pytest.raises(SchemaMismatch, match=r"PB-007.*'0999'.*newest release"):
        install(engine)


def test_the_printed_ddl_runs_as_it_is_and_install_finds_it_up_to_date(
    engine: Engine, database_url: str, database_name: str
) -> None:
    run_script(database_url, ddl("mariadb" if database_name.startswith("mariadb") else engine.dialect.name))
    assert [line.split(" (")[0] for line in install(engine)] == ["The outbox is up to date", "The inbox is up to date"]
    name = new_name()
    with engine.begin() as connection:
        Outbox(engine).add(connection, event(name), to="orders")
    assert events(engine, name) == 1
    assert differences(engine, outbox_metadata, include_object=outbox_only) == []


def outbox_only(_item: Any, name: str | None, kind: str, *_rest: Any) -> bool:
    return kind != "table" or name in outbox_metadata.tables


def test_the_ddl_of_an_unknown_database_is_refused() -> None:
    with pytest.raises(BadUrl, match=r"oracle.*mysql, mariadb, postgresql, sqlite"):
        ddl("oracle")


@on("sqlite", "postgres", "mysql")
def test_users_own_alembic_leaves_our_tables_alone(engine: Engine) -> None:
    install(engine)
    Base.metadata.create_all(engine)
    assert differences(engine, Base.metadata, include_object=include_object) == []
    dropped = {change[1].name for change in differences(engine, Base.metadata) if change[0] == "remove_table"}
    assert dropped == TABLES, "without the helper autogenerate would drop them"


def test_install_works_with_sqlite_in_memory_and_with_the_drivers_own_begin(tmp_path: Any) -> None:
    for engine in (create_engine("sqlite://"), sqlite_engine("sqlite://"), create_engine(f"sqlite:///{tmp_path}/a.db")):
        assert len(install(engine)) == 2
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM outbox_status")).scalar() == 0
        engine.dispose()


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("outbox_ready", {"fillfactor=70", "vacuum_truncate=off", "autovacuum_vacuum_threshold=5000"}),
        ("outbox_partition", {"fillfactor=70", "vacuum_truncate=off", "autovacuum_vacuum_threshold=1000"}),
        ("outbox_parked", {"autovacuum_vacuum_scale_factor=0", "vacuum_truncate=off"}),
    ],
)
def test_hot_tables_on_postgresql_have_room_and_are_never_truncated(
    postgres_url: str, table: str, expected: set[str]
) -> None:
    engine = create_engine(postgres_url)
    install(engine)
    with engine.connect() as connection:
        options = connection.execute(
            text("SELECT reloptions FROM pg_class WHERE relname = :table"), {"table": table}
        ).scalar_one()
    engine.dispose()
    assert expected <= set(options)


def run_script(url: str, script: str) -> None:
    """As ``psql``, ``mysql`` and ``sqlite3`` do with a file."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(url)
        with closing(engine.raw_connection()) as connection:
            connection.driver_connection.executescript(script)  # type: ignore[union-attr]
        engine.dispose()
    elif parsed.get_backend_name() == "postgresql":
        plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as server:
            server.execute(script)  # type: ignore[call-overload]
    else:
        with (
            pymysql.connect(
                host=parsed.host,
                port=parsed.port or 3306,
                user=parsed.username,
                password=parsed.password or "",
                database=parsed.database,
                client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
            ) as client,
            client.cursor() as cursor,
        ):
            cursor.execute(script)
            while cursor.nextset():
                pass
