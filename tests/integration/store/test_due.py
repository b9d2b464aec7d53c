"""The due mover of the row lease: what waits for a time comes when it is due, unless its key or destination is held."""

from datetime import UTC, datetime, timedelta

import pytest

from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.ports import EVERY_LANE
from pillarbox.store import write
from pillarbox.store.inspect import overview
from pillarbox.testing.conformance.store_world import event
from tests.sql_outbox import SqlOutbox

HOUR = 3_600.0


def schedule(outbox: SqlOutbox, *keys: str) -> list[int]:
    """One event for each key, due in an hour."""
    due = datetime.now(UTC) + timedelta(seconds=HOUR)
    with outbox.engine.begin() as connection:
        return write.insert(connection, [write.row_of(event(key=key), due=due) for key in keys])


def hold(outbox: SqlOutbox, lane: int, target: int, partition_no: int) -> None:
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
            f" VALUES ({partition_no}, {lane}, {target}, 'dead', 1, '2020-01-01', 'things', 'refused')"
        )


@pytest.fixture(autouse=True)
def no_holds(outbox: SqlOutbox) -> None:
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox_lane")


def claimed(outbox: SqlOutbox) -> list[str | None]:
    store = outbox.store("relay")
    moved = store.move_due(100)
    keys = [one.message.key for one in store.claim(100).deliveries]
    assert len(keys) == moved
    return sorted(keys, key=str)


def test_a_scheduled_event_goes_when_its_time_has_come_and_not_before(outbox: SqlOutbox) -> None:
    schedule(outbox, "a", "b")
    assert claimed(outbox) == []
    with outbox.engine.begin() as connection:
        found = overview(connection)
    assert (found.counts["SCHEDULED"], found.oldest_age) == (2, None)
    outbox.pass_time(HOUR + 1)
    assert claimed(outbox) == ["a", "b"]


def test_what_is_scheduled_behind_a_hold_of_its_key_stays(outbox: SqlOutbox) -> None:
    schedule(outbox, "free", "held")
    lane = lane_of("held")
    hold(outbox, lane, lane_of("things"), partition_of(lane))
    hold(outbox, lane_of("free"), lane_of("another destination"), partition_of(lane_of("free")))
    outbox.pass_time(HOUR + 1)
    assert claimed(outbox) == ["free"]
    assert claimed(outbox) == []
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox_lane")
    assert claimed(outbox) == ["held"]


def test_what_is_scheduled_for_a_held_destination_stays(outbox: SqlOutbox) -> None:
    schedule(outbox, "a")
    partition_no = partition_of(lane_of("a"))
    hold(outbox, EVERY_LANE, lane_of("things"), partition_no)
    hold(outbox, EVERY_LANE, lane_of("other"), partition_no)
    outbox.pass_time(HOUR + 1)
    assert claimed(outbox) == []


def test_retries_and_scheduled_events_share_the_limit(outbox: SqlOutbox) -> None:
    schedule(outbox, "a", "b", "c", "d")
    with outbox.engine.begin() as connection:
        ids = connection.exec_driver_sql("SELECT id FROM outbox_parked ORDER BY id").scalars().all()
        connection.exec_driver_sql(f"UPDATE outbox_parked SET state = 'RETRY', claims = 4 WHERE id = {ids[0]}")
    outbox.pass_time(HOUR + 1)
    store = outbox.store("relay")
    assert [store.move_due(3), store.move_due(3), store.move_due(3)] == [3, 1, 0]
    claims = {one.message.key: one.claims for one in store.claim(10).deliveries}
    assert claims == {"a": 5, "b": 1, "c": 1, "d": 1}
