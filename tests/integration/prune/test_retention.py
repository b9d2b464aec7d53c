"""What retention takes and what it never takes, on every database."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine
from sqlalchemy import event as sqlalchemy_event

from pillarbox import faultpoints
from pillarbox.clock import SystemClock
from pillarbox.errors import ArchiveFailed
from pillarbox.ops.prune import TO_TABLE, ArchivedEvent, Pruner, Rules, run
from pillarbox.ops.prune_preview import preview
from pillarbox.policy.retention import Keep
from pillarbox.store.capabilities import detect
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.prune.bounds import bounds
from pillarbox.store.prune.words import words_of
from pillarbox.store.transactions import Transactions
from tests.integration.prune.mixture import DAY, Planned, event_ids, everything, mixture, put, receipt_ids
from tests.sql_outbox import SqlOutbox

WEEK = Keep(sent=7 * DAY)


@pytest.fixture
def engine(outbox: SqlOutbox):
    engine = relay_engine(outbox.url, pool_size=2, timeouts=Timeouts(lock=1))
    yield engine
    engine.dispose()


def prune(engine: Engine, rules: Rules) -> Pruner:
    pruner = Pruner(engine, rules)
    last = run(pruner, pause=lambda seconds: None)
    assert last.finished
    pruner.close()
    return pruner


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keep_dead", [None, 30], ids=["dead-stay", "dead-go-after-30-days"])
def test_exactly_what_is_finished_and_old_goes_and_nothing_else(
    outbox: SqlOutbox, engine: Engine, seed: int, keep_dead: int | None
) -> None:
    """Several destinations, each sent, waiting, leased, in retry, scheduled, held, dead, buried or without a trace."""
    planned = [*mixture(150, seed), Planned(["SENT"], [60])]
    put(outbox, planned)
    before = everything(outbox)
    highest = planned[-1].number
    going = {one.number for one in planned if one.may_go(7, keep_dead)} - {highest}
    assert len(going) > 10

    pruner = prune(engine, Rules(Keep(7 * DAY, None if keep_dead is None else keep_dead * DAY), batch=7))

    after = everything(outbox)
    assert pruner.removed == len(going)
    assert event_ids(outbox) == {row[0] for row in before["outbox_event"]} - going
    assert after["outbox_ready"] == before["outbox_ready"]
    assert after["outbox_parked"] == [row for row in before["outbox_parked"] if row[2] not in going]
    leftovers = {
        one.number for one in planned if replace(one, no_event=False, unreadable=False).may_go(7, None) and one.no_event
    }
    assert receipt_ids(outbox) == {row[0] for row in before["outbox_receipt"]} - going - leftovers


def test_the_highest_id_stays_though_it_was_sent_long_ago(outbox: SqlOutbox, engine: Engine) -> None:
    """MySQL 5.7 and old MariaDB hand out the id after the highest one again when they restart."""
    planned = [Planned(["SENT"], [60]) for _ in range(5)]
    put(outbox, planned)
    prune(engine, Rules(Keep(sent=0, dead=0)))
    prune(engine, Rules(Keep(sent=0, dead=0)))
    assert event_ids(outbox) == receipt_ids(outbox) == {planned[-1].number}


def test_the_highest_id_stays_when_it_is_dead(outbox: SqlOutbox, engine: Engine) -> None:
    planned = [Planned(["DEAD"], [60]) for _ in range(3)]
    put(outbox, planned)
    prune(engine, Rules(Keep(sent=0, dead=0)))
    assert event_ids(outbox) == {planned[-1].number}


def test_the_dead_head_of_a_hold_stays(outbox: SqlOutbox, engine: Engine) -> None:
    """Those behind it wait for somebody to replay, skip or bury it."""
    planned = [Planned(["DEAD"], [60]), Planned(["BURIED"], [60]), Planned(["SENT"], [1])]
    put(outbox, planned)
    with outbox.engine.begin() as connection:
        partition, lane = connection.exec_driver_sql(
            f"SELECT partition_no, lane FROM outbox_parked WHERE id = {planned[0].number}"
        ).one()
        connection.exec_driver_sql(
            "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
            f" VALUES ({partition}, {lane}, 5, 'dead', {planned[0].number}, '2020-01-01', 'orders', 'broken')"
        )
    prune(engine, Rules(Keep(sent=0, dead=30 * DAY)))
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox_lane")
    assert event_ids(outbox) == {planned[0].number, planned[2].number}


@pytest.mark.parametrize("seed", range(2))
def test_a_dry_run_foretells_the_run_and_touches_nothing(outbox: SqlOutbox, engine: Engine, seed: int) -> None:
    put(outbox, [*mixture(100, seed), Planned(["SENT"], [1])])
    keep = Keep(7 * DAY, 30 * DAY)
    before = everything(outbox)
    found = preview(Transactions(engine), keep, batch=10)
    assert everything(outbox) == before
    assert prune(engine, Rules(keep, batch=10)).removed == found.events
    assert found.batches >= found.events / 10
    assert found.states["SENT"].oldest_age > 0
    assert {"DEAD", "PENDING", "RETRY"} <= set(found.states)


def test_an_archive_table_has_every_event_that_went_with_its_deliveries(outbox: SqlOutbox, engine: Engine) -> None:
    planned = [*mixture(100, 5), Planned(["SENT"], [1])]
    put(outbox, planned)
    going = {one.number: one for one in planned if one.may_go(7, 30)}
    with outbox.engine.begin() as connection:
        payloads = dict(connection.exec_driver_sql("SELECT id, payload FROM outbox_event").all())
    prune(engine, Rules(Keep(7 * DAY, 30 * DAY), batch=9, archive=TO_TABLE))
    with outbox.engine.begin() as connection:
        events = connection.exec_driver_sql("SELECT id, event_id, payload FROM outbox_archive").all()
        deliveries = connection.exec_driver_sql(
            "SELECT a.id, d.dest, d.state FROM outbox_archive_delivery d"
            " JOIN outbox_archive a ON a.event_id = d.event_id"
        ).all()
        for table in ("outbox_archive", "outbox_archive_delivery"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
    assert {number: bytes(payload) for number, _, payload in events} == {n: bytes(payloads[n]) for n in going}
    assert sorted(map(tuple, deliveries)) == sorted(
        (number, dest, state) for number, one in going.items() for dest, state in enumerate(one.deliveries)
    )


def test_an_archive_function_gets_every_event_before_it_goes(outbox: SqlOutbox, engine: Engine) -> None:
    planned = [*mixture(100, 6), Planned(["SENT"], [1])]
    put(outbox, planned)
    going = {one.number: one for one in planned if one.may_go(7, 30)}
    given: list[ArchivedEvent] = []

    def keep_them(rows: list[ArchivedEvent]) -> None:
        assert {row.id for row in rows} <= event_ids(outbox)
        assert len(rows) <= 9
        given.extend(rows)

    prune(engine, Rules(Keep(7 * DAY, 30 * DAY), batch=9, archive=keep_them))
    assert {row.id: [one.state for one in row.deliveries] for row in given} == {
        number: one.deliveries for number, one in going.items()
    }
    assert all(row.message.key == going[row.id].key and row.recorded_at.tzinfo for row in given)


def test_what_an_archive_function_refuses_stays(outbox: SqlOutbox, engine: Engine) -> None:
    put(outbox, [Planned(["SENT"], [60]) for _ in range(10)])
    before = everything(outbox)

    def refuse(rows: list[ArchivedEvent]) -> None:
        raise OSError("the bucket is full")

    with pytest.raises(ArchiveFailed, match="the bucket is full"):
        run(Pruner(engine, Rules(WEEK, archive=refuse)))
    assert everything(outbox) == before


def test_an_event_that_becomes_removable_after_the_hand_over_is_not_removed_unarchived(
    outbox: SqlOutbox, engine: Engine
) -> None:
    planned = [Planned(["SENT"], [60]), Planned(["SENT"], [60], also_ready=True), Planned(["SENT"], [1])]
    put(outbox, planned)

    def settle_meanwhile(rows: list[ArchivedEvent]) -> None:
        assert [row.id for row in rows] == [planned[0].number]
        with outbox.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM outbox_ready")

    pruner = Pruner(engine, Rules(WEEK, archive=settle_meanwhile))
    assert pruner.step().removed == 1
    pruner.close()
    assert event_ids(outbox) == {planned[1].number, planned[2].number}


def test_only_one_pruner_works_at_a_time_and_the_next_takes_over(outbox: SqlOutbox, engine: Engine) -> None:
    put(outbox, [Planned(["SENT"], [60]) for _ in range(10)])
    second_engine = relay_engine(outbox.url, pool_size=2)
    first, second = Pruner(engine, Rules(WEEK, batch=2)), Pruner(second_engine, Rules(WEEK, batch=2))
    assert first.step().removed == 2
    assert second.step().elsewhere
    assert first.step().removed == 2
    first.close()
    assert second.step().removed == 2
    assert first.step().elsewhere
    second.close()
    second_engine.dispose()


def test_large_events_go_in_small_transactions(
    outbox: SqlOutbox, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(outbox, [Planned(["SENT"], [60]) for _ in range(10)])
    monkeypatch.setattr("pillarbox.ops.prune.MAX_BYTES", 1)
    pruner = Pruner(engine, Rules(WEEK))
    assert [pruner.step().removed for _ in range(9)] == [1] * 9
    pruner.close()
    assert len(event_ids(outbox)) == 1


def test_a_pruner_that_dies_within_a_batch_has_removed_nothing_of_it(outbox: SqlOutbox, engine: Engine) -> None:
    put(outbox, [Planned(["SENT"], [60]) for _ in range(10)])
    before = everything(outbox)

    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "prune.within":
            raise Died

    faultpoints.attach(die)
    try:
        pruner = Pruner(engine, Rules(WEEK))
        with pytest.raises(Died):
            pruner.step()
    finally:
        faultpoints.attach(None)
    assert everything(outbox) == before
    pruner.close()
    assert prune(engine, Rules(WEEK)).removed == 9


def test_the_rate_is_kept(outbox: SqlOutbox, engine: Engine) -> None:
    put(outbox, [Planned(["SENT"], [60]) for _ in range(12)])
    pruner = Pruner(engine, Rules(WEEK, batch=5, rate=10.0))
    began = SystemClock().monotonic()
    step = pruner.step()
    pruner.close()
    assert step.removed == 5
    assert 0.5 - (SystemClock().monotonic() - began) <= step.pause <= 0.5


def test_replay_records_go_with_their_event(outbox: SqlOutbox, engine: Engine) -> None:
    planned = [Planned(["SENT"], [60]), Planned(["SENT"], [1]), Planned(["SENT"], [1])]
    put(outbox, planned)
    with outbox.engine.begin() as connection:
        for one in planned[:2]:
            connection.exec_driver_sql(
                "INSERT INTO outbox_replay (id, dest, replayed_at, replayed_by, reason, attempts, error)"
                f" VALUES ({one.number}, 0, '2026-01-01', 'me', 'why', 1, 'broken')"
            )
    prune(engine, Rules(WEEK))
    assert [row[1] for row in everything(outbox)["outbox_replay"]] == [planned[1].number]


def test_a_run_does_not_walk_along_what_is_too_young(outbox: SqlOutbox, engine: Engine) -> None:
    """Nor does a clock that was once wrong by years keep anything from going."""
    planned = [Planned(["SENT"], [60]) for _ in range(300)]
    put(outbox, planned)
    first, wrong = planned[0].number, planned[100].number
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE outbox_event SET recorded_at = '2099-01-01' WHERE id BETWEEN {wrong} AND {wrong + 80}"
        )
        young = {"postgresql": "clock_timestamp()", "mysql": "UTC_TIMESTAMP(6)"}.get(
            outbox.dialect, "CURRENT_TIMESTAMP"
        )
        connection.exec_driver_sql(f"UPDATE outbox_event SET recorded_at = {young} WHERE id >= {first + 250}")
    with outbox.engine.begin() as connection:
        words = words_of(detect(connection))
        found = bounds(connection, words, WEEK)
    assert (found.end, found.highest) == (first + 250, first + 299)
    assert prune(engine, Rules(WEEK)).removed == 250


def test_the_binary_log_may_have_the_keys_only(outbox: SqlOutbox, engine: Engine) -> None:
    """The session is as it was afterwards; other servers have no such thing, and nothing is asked of them."""
    put(outbox, [Planned(["SENT"], [60]) for _ in range(10)])
    heard: list[str] = []
    sqlalchemy_event.listen(engine, "before_cursor_execute", lambda *said: heard.append(said[2]))
    assert prune(engine, Rules(WEEK, minimal_row_image=True)).removed == 9
    said = [one for one in heard if "row_image" in one]
    assert [one.split()[-1] for one in said] == (["'MINIMAL'", "DEFAULT"] if outbox.dialect == "mysql" else [])
