"""Two outboxes in one schema: everything of theirs is their own, and one transaction may add to both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pillarbox import AsyncOutbox, Event, Outbox, install
from pillarbox.errors import AddFailed, ImplicitCommit, InitBusy, InvalidEvent, TablesMissing
from pillarbox.ops.prune import TO_TABLE, Pruner, Rules, run
from pillarbox.policy.retention import Keep
from pillarbox.ports import Sent, Settlement
from pillarbox.store.ddl import ddl, include_object_but
from pillarbox.store.engines import relay_engine
from pillarbox.store.inspect import overview
from pillarbox.store.install import _ALONE, downgrade
from pillarbox.store.naming import NAMES, Naming, prefixed
from pillarbox.store.prune.alone import turn
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.store.wakeup import listening
from tests.integration.outbox.test_install import run_script
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_outbox import TABLES

PREFIXES = ("shop_", "billing_")
SHOP, BILLING = (Outbox(table_prefix=prefix) for prefix in PREFIXES)


@pytest.fixture
def empty(database_url: str) -> Iterator[Engine]:
    engine = relay_engine(database_url, pool_size=8)
    yield engine
    engine.dispose()


@pytest.fixture(
    scope="module", params=["sqlite", *(pytest.param(one, marks=pytest.mark.services) for one in DATABASES)]
)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Both outboxes in one database of each kind."""
    if request.param == "sqlite":
        with with_both(f"sqlite:///{tmp_path_factory.mktemp('prefixes') / 'both.db'}") as engine:
            yield engine
        return
    with fresh_database(_need(request, request.param).url) as url, with_both(url) as engine:
        yield engine


@contextmanager
def with_both(url: str) -> Iterator[Engine]:
    engine = relay_engine(url, pool_size=8)
    for prefix in PREFIXES:
        assert install(engine, ["outbox"], table_prefix=prefix)[0].startswith("Created")
    yield engine
    engine.dispose()


@pytest.fixture
def engine(shared: Engine) -> Engine:
    with shared.begin() as connection:
        for prefix in PREFIXES:
            for table in TABLES:
                connection.exec_driver_sql(f"DELETE FROM {prefix}{table}")
    return shared


def some(name: str) -> Event[dict[str, str]]:
    return Event({"name": name}, type="thing.happened", key="k")


def put(engine: Engine, outbox: Outbox, *names: str) -> list[str]:
    with engine.begin() as connection:
        return [str(outbox.add(connection, some(name), to="things").id) for name in names]


def stored(engine: Engine, prefix: str) -> list[str]:
    """Event ids in the order of their row ids, each with its ready row."""
    sql = f"SELECT e.event_id FROM {prefix}outbox_event e JOIN {prefix}outbox_ready r ON r.id = e.id ORDER BY e.id"
    with engine.connect() as connection:
        return [str(one) for one in connection.scalars(text(sql))]


def test_every_name_has_the_prefix_and_the_inbox_none(empty: Engine) -> None:
    install(empty, table_prefix="shop_")
    there = inspect(empty)
    tables = {*there.get_table_names(), *there.get_view_names()}
    theirs = {name for name in NAMES if not name.startswith("outbox_archive")}
    assert {"inbox_event", "inbox_alembic"} <= tables
    assert {one for one in tables if not one.startswith("inbox_")} <= {f"shop_{name}" for name in theirs}
    named = {str(one["name"]) for table in tables for one in there.get_indexes(table)} - {"None"}
    ours = {one for one in named if not one.startswith(("sqlite_autoindex", "inbox_"))}
    assert ours <= {f"shop_{name}" for name in NAMES}
    assert {"shop_outbox_parked_due", "shop_outbox_lane_mode"} <= named
    if empty.dialect.name == "postgresql":
        with empty.connect() as connection:
            of_ours = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            assert all(name.startswith(("shop_outbox_", "inbox_")) for name in connection.scalars(text(of_ours)))
    mine = include_object_but("shop_")
    assert not any(mine(None, name, "table", True, None) for name in tables - set(there.get_view_names()))


def test_init_makes_one_inbox_for_all_and_nothing_twice(engine: Engine) -> None:
    assert "up to date" in install(engine, table_prefix="shop_")[0]
    assert all("up to date" in one for one in install(engine, table_prefix="billing_"))


@pytest.mark.parametrize("database_name", ["sqlite", "postgres", "mysql57"], indirect=True)
def test_the_printed_ddl_makes_the_same_tables(empty: Engine, database_url: str) -> None:
    run_script(database_url, ddl(empty.dialect.name, ["outbox"], table_prefix="shop_"))
    assert "up to date" in install(empty, ["outbox"], table_prefix="shop_")[0]
    put(empty, SHOP, "a")


def test_taking_one_back_and_up_again_leaves_the_other_alone(engine: Engine) -> None:
    ours, theirs = put(engine, SHOP, "a", "b"), put(engine, BILLING, "c")
    assert downgrade(engine, "0001", table_prefix="shop_").startswith("Took the outbox back")
    with pytest.raises(TablesMissing):
        downgrade(engine, "0001", table_prefix="refunds_")
    theirs += put(engine, BILLING, "d")
    assert "up to date" in install(engine, ["outbox"], table_prefix="billing_")[0]
    assert install(engine, ["outbox"], table_prefix="shop_")[0].startswith("Migrated the outbox from 0001")
    assert (stored(engine, "shop_"), stored(engine, "billing_")) == (ours, theirs)


def test_one_transaction_adds_to_both_and_takes_each_back_with_its_savepoint(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        first = SHOP.add(session, some("a"), to="things").id
        inner = session.begin_nested()
        BILLING.add_all(session, [some("b"), some("c")], to="things")
        inner.rollback()
        second = BILLING.add(session, some("d"), to="things").id
    assert (stored(engine, "shop_"), stored(engine, "billing_")) == ([str(first)], [str(second)])


def test_an_id_that_is_there_already_is_recognised_in_its_own_outbox_only(engine: Engine) -> None:
    with engine.begin() as connection:
        queued = SHOP.add(connection, some("a"), to="things")
        BILLING.add(connection, Event({}, type="t", id=queued.id), to="things")
    with pytest.raises(InvalidEvent, match="already holds"), engine.begin() as connection:
        SHOP.add(connection, Event({}, type="t", id=queued.id), to="things")


def test_an_outbox_that_is_not_there_is_missed_by_its_name(engine: Engine) -> None:
    with pytest.raises(TablesMissing, match=r"no table refunds_outbox_meta.*init --table-prefix refunds_ "):
        put(engine, Outbox(table_prefix="refunds_"), "a")
    with pytest.raises(TablesMissing, match="no table outbox_meta"):
        put(engine, Outbox(), "a")


@pytest.mark.parametrize("shared", ["mysql", "mariadb"], indirect=True)
def test_a_statement_that_commits_implicitly_tells_of_the_events_in_both(engine: Engine) -> None:
    with engine.connect() as connection:
        SHOP.add(connection, some("a"), to="things")
        BILLING.add(connection, some("b"), to="things")
        with pytest.raises(ImplicitCommit, match="2 event"):
            connection.execute(text("CREATE TABLE IF NOT EXISTS other (id INT)"))
    assert len(stored(engine, "shop_") + stored(engine, "billing_")) == 2


@pytest.mark.parametrize("shared", ["postgres"], indirect=True)
def test_a_swallowed_error_is_found_whichever_outbox_was_written(engine: Engine) -> None:
    with engine.connect() as connection:
        SHOP.add(connection, some("a"), to="things")
        BILLING.add(connection, some("b"), to="things")
        with pytest.raises(ProgrammingError):
            connection.execute(text("SELECT * FROM nowhere"))
        with pytest.raises(AddFailed, match="rolled back 2"):
            connection.commit()


def test_each_is_claimed_counted_archived_and_pruned_by_itself(engine: Engine) -> None:
    put(engine, SHOP, "a", "b", "c")
    put(engine, BILLING, "d")
    mine = prefixed(engine, "shop_")
    store = RowLeaseStore(mine, relay_id="r", lease=60.0)
    claim = store.claim(10)
    assert len(claim.deliveries) == 3
    store.settle(Settlement(claim.token, sent=[Sent(one.key, 0, one.key.id) for one in claim.deliveries]))
    theirs, other = turn(prefixed(engine, "billing_")), turn(mine)
    assert theirs.take()
    try:
        pruner = Pruner(mine, Rules(Keep(sent=0.0), archive=TO_TABLE))
        run(pruner)
        assert other.take()
        assert Pruner(mine, Rules()).step().elsewhere
    finally:
        theirs.leave()
        other.leave()
    assert pruner.removed == 2  # the highest id stays
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT COUNT(*) FROM shop_outbox_archive_delivery")) == 2
        assert connection.scalars(text("SELECT status FROM billing_outbox_status")).all() == ["PENDING"]
    with mine.connect() as connection:
        assert overview(connection).counts["SENT"] == 1
    assert not inspect(engine).has_table("outbox_archive")
    assert not inspect(engine).has_table("billing_outbox_archive")


@pytest.mark.parametrize("shared", ["postgres", "mysql"], indirect=True)
def test_init_of_one_waits_for_no_other(engine: Engine) -> None:
    naming = Naming("shop_")
    with engine.connect() as connection, _ALONE[engine.dialect.name](connection, 5.0, naming):
        assert "up to date" in install(engine, ["outbox"], deadline=1.0, table_prefix="billing_")[0]
        with pytest.raises(InitBusy):
            install(engine, ["outbox"], deadline=1.0, table_prefix="shop_")


@pytest.mark.parametrize("shared", ["postgres"], indirect=True)
def test_a_commit_wakes_the_relays_of_its_outbox_only(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    woken = {prefix: threading.Semaphore(0) for prefix in PREFIXES}
    mine, theirs = (listening(url, woken[one].release, table_prefix=one) for one in PREFIXES)
    with mine, theirs:
        for one in woken.values():
            assert one.acquire(timeout=20)  # each once it listens
        put(engine, Outbox(table_prefix="shop_", notify=True), "a")
        assert woken["shop_"].acquire(timeout=20)
        put(engine, Outbox(table_prefix="billing_", notify=True), "b")
        assert woken["billing_"].acquire(timeout=20)
        assert not any(one.acquire(blocking=False) for one in woken.values())


@pytest.mark.parametrize("shared", ["sqlite"], indirect=True)
def test_the_async_face_takes_a_prefix_too(engine: Engine) -> None:
    async def add() -> str:
        bind = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"))
        async with AsyncSession(bind) as session, session.begin():
            queued = await AsyncOutbox(bind, table_prefix="shop_").add(session, some("a"), to="things")
        await bind.dispose()
        return str(queued.id)

    assert [asyncio.run(add())] == stored(engine, "shop_")


@pytest.mark.parametrize("database_name", ["postgres", "mysql57"], indirect=True)
def test_a_name_as_long_as_can_be_works_from_init_to_prune(empty: Engine) -> None:
    prefix = "a" * 32
    install(empty, ["outbox"], table_prefix=prefix)
    put(empty, Outbox(table_prefix=prefix), "a", "b")
    store = RowLeaseStore(prefixed(empty, prefix), relay_id="r", lease=60.0)
    claim = store.claim(10)
    store.settle(Settlement(claim.token, sent=[Sent(one.key, 0, one.key.id) for one in claim.deliveries]))
    pruner = Pruner(prefixed(empty, prefix), Rules(Keep(sent=0.0), archive=TO_TABLE))
    run(pruner, pause=partial(threading.Event().wait))
    assert pruner.removed == 1
