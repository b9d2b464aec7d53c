"""Whole partitions of tables that a DBA partitioned by RANGE (id), as docs/operations.md shows it."""

import re
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pillarbox.errors import DatabaseBusy, PartitionsUnfit
from pillarbox.ops.prune import Pruner, Rules, run
from pillarbox.ops.prune_partitions import drop_partitions
from pillarbox.policy.retention import Keep
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.install import install
from pillarbox.testing.conformance.store_world import all_sent, event
from tests.integration.prune.mixture import DAY, Planned, event_ids, put, receipt_ids
from tests.sql_outbox import SqlOutbox

TEXT = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
WEEK = Keep(sent=7 * DAY)

pytestmark = pytest.mark.services
both = pytest.mark.parametrize("database_name", ["postgres", "mysql"], indirect=True)


def documented(dialect: str) -> list[str]:
    """The statements of the documentation, with partitions of 10 ids instead of 10 million."""
    found = re.search(rf"```sql\n-- {dialect}: partitions\n(.*?)```", TEXT, re.DOTALL)
    assert found
    script = re.sub(r"(\d)0000000\b", r"\g<1>0", found[1])
    return [one.strip() for one in re.sub(r"--.*", "", script).split(";") if one.strip()]


@pytest.fixture
def outbox(database_url: str):
    outbox = SqlOutbox(database_url)
    for statement in documented("PostgreSQL" if outbox.dialect == "postgresql" else "MySQL"):
        with outbox.engine.begin() as connection:
            connection.exec_driver_sql(statement.replace("%", "%%"))
    install(outbox.engine, ["outbox"])
    yield outbox
    outbox.close()


@pytest.fixture
def engine(outbox: SqlOutbox):
    engine = relay_engine(outbox.url, pool_size=3, timeouts=Timeouts(lock=1))
    yield engine
    engine.dispose()


@both
def test_an_outbox_in_partitions_works_like_any_other(outbox: SqlOutbox, engine: Engine) -> None:
    ids = outbox.add([event(key=f"key-{n}") for n in range(25)])
    assert len(set(ids)) == 25
    store = outbox.store("a")
    claim = store.claim(100)
    assert store.settle(all_sent(claim.token, claim.deliveries)).sent == 25
    with outbox.engine.begin() as connection:
        counted = connection.exec_driver_sql("SELECT COUNT(*) FROM outbox_status WHERE status = 'SENT'").scalar_one()
    assert counted == 25
    pruner = Pruner(engine, Rules(Keep(sent=0)))
    run(pruner)
    assert pruner.removed == 24
    assert event_ids(outbox) == receipt_ids(outbox) == {max(ids)}


@both
def test_partitions_of_which_all_is_sent_are_dropped_and_the_others_stay(outbox: SqlOutbox, engine: Engine) -> None:
    planned = [Planned(["SENT", "SENT"], [60, 60]) for _ in range(45)]
    planned[24].deliveries[1] = "RETRY"  # in the third partition: 20 to 29
    put(outbox, planned)
    assert [one.number for one in planned] == list(range(1, 46))
    would = [(one.low, one.high) for one in drop_partitions(engine, WEEK, dry_run=True)]
    assert len(event_ids(outbox)) == 45
    dropped = [(one.table, one.low, one.high) for one in drop_partitions(engine, WEEK)]
    assert would == [(0, 10), (10, 20)]
    assert dropped == [(table, low, low + 10) for table in ("outbox_event", "outbox_receipt") for low in (0, 10)]
    assert event_ids(outbox) == receipt_ids(outbox) == set(range(20, 46))
    assert list(drop_partitions(engine, WEEK)) == []


@both
def test_the_partition_of_the_highest_id_and_of_young_events_stays(outbox: SqlOutbox, engine: Engine) -> None:
    planned = [Planned(["SENT"], [60]) for _ in range(15)]
    planned[3].days = [2]
    put(outbox, planned)
    assert list(drop_partitions(engine, WEEK)) == []
    planned[3].days = [60]
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE outbox_receipt SET sent_at = '2020-01-01'")
    assert [(one.low, one.high) for one in drop_partitions(engine, Keep(sent=7 * DAY))][:1] == [(0, 10)]
    assert event_ids(outbox) == set(range(10, 16))


@both
def test_a_late_commit_into_an_old_partition_is_never_dropped_with_it(outbox: SqlOutbox, engine: Engine) -> None:
    """It holds the table's lock until it ends: the drop gives up, and finds the row when it tries again."""
    planned = [Planned(["SENT"], [60]) for _ in range(25)]
    put(outbox, planned)
    columns = "event_id, event_type, schema_version, destination, content_type, payload, occurred_at, recorded_at"
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox_event WHERE id = 5")
        connection.exec_driver_sql("DELETE FROM outbox_receipt WHERE id = 5")
    with outbox.engine.connect() as late:
        late.exec_driver_sql(
            f"INSERT INTO outbox_event (id, {columns})"
            " VALUES (5, 'late', 'x', 1, 't', 'c', 'p', '2020-01-01', '2020-01-01')"
        )
        with pytest.raises(DatabaseBusy):
            list(drop_partitions(engine, WEEK))
        late.commit()
    assert list(drop_partitions(engine, WEEK)) == []
    assert 5 in event_ids(outbox)


@pytest.mark.parametrize("database_name", ["postgres", "mysql", "sqlite"], indirect=True)
def test_tables_without_partitions_are_refused(database_url: str) -> None:
    outbox = SqlOutbox(database_url)
    with pytest.raises(PartitionsUnfit):
        list(drop_partitions(outbox.engine, WEEK))
    outbox.close()
