"""Held rows without a hold are found a page at a time, however many others are held."""

import pytest
from sqlalchemy import Connection

from pillarbox.store.ordered.unheld import PAGE, Unheld, free
from tests.sql_outbox import SqlOutbox

LONG, GONE, LAST = 5, PAGE + 30, 2 * PAGE + 50


@pytest.fixture(autouse=True)
def held(outbox: SqlOutbox) -> None:
    """Two partitions with a held row in each of many lanes, and 3 pages of them in one; one hold is gone."""
    moment = "'2020-01-01'" if outbox.dialect != "postgresql" else "timestamptz '2020-01-01'"
    rows = [(number, lane, lane) for number in (0, 1) for lane in range(1, LAST + 1)]
    rows += [(0, LONG, 1_000 + extra) for extra in range(3 * PAGE)]
    holds = [(number, lane) for number, lane, event in rows if event == lane and (number, lane) != (1, GONE)]
    with outbox.engine.begin() as connection:
        for table in ("outbox_lane", "outbox_parked"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
        values = ", ".join(f"({n}, {event}, 0, {lane}, 'HELD', 1, 7, '', {moment})" for n, lane, event in rows)
        connection.exec_driver_sql(
            "INSERT INTO outbox_parked (partition_no, id, dest, lane, state, attempts, target, error, error_at)"
            f" VALUES {values}"
        )
        values = ", ".join(f"({n}, {lane}, 7, 'dead', 1, {moment}, 'things', '')" for n, lane in holds)
        connection.exec_driver_sql(
            "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
            f" VALUES {values}"
        )


def test_the_walk_comes_by_everywhere_and_begins_again(outbox: SqlOutbox) -> None:
    walk = Unheld()
    with outbox.engine.begin() as connection:
        looks = [walk.look(connection, [0, 1]) for _ in range(6)]
    assert looks[0] == []
    assert [look for look in looks if look] == [[(1, GONE)]] * 2
    assert walk.look(connection, []) == []


def test_what_has_lost_its_hold_comes_due_and_nothing_else_does(outbox: SqlOutbox) -> None:
    with outbox.engine.begin() as connection:
        assert free(connection, [(1, GONE), (1, GONE + 1), (0, LONG)]) == 1
    with outbox.engine.begin() as connection:
        assert in_retry(connection) == [(1, GONE)]
        connection.exec_driver_sql("DELETE FROM outbox_lane WHERE lane = 5")
        assert free(connection, [(0, LONG)]) == 3 * PAGE + 1


def test_a_hold_on_the_whole_destination_holds_them_all(outbox: SqlOutbox) -> None:
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE outbox_lane SET lane = -1 WHERE partition_no = 1 AND lane = 1")
        walk = Unheld()
        assert [walk.look(connection, [0, 1]) for _ in range(4)] == [[]] * 4
        assert free(connection, [(1, GONE), (1, 1)]) == 0


def in_retry(connection: Connection) -> list[tuple[int, int]]:
    rows = connection.exec_driver_sql("SELECT partition_no, lane FROM outbox_parked WHERE state = 'RETRY'").all()
    return [(row[0], row[1]) for row in rows]
