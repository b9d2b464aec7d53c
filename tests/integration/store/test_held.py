"""Held keys on every database: what an operator sees, and what his word changes, where relays keep order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text

from pillarbox.errors import ConfigError
from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ops import held as ops
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.ports import EVERY_LANE, Stream
from pillarbox.store import holds
from pillarbox.store.capabilities import detect
from pillarbox.store.dead import DeadFilter
from pillarbox.store.inspect import overview
from pillarbox.store.parked import move_due
from pillarbox.store.replay import bury, replay
from pillarbox.store.skipping import skip
from pillarbox.store.transactions import Transactions
from pillarbox.testing.conformance.store_world import event
from tests.sql_outbox import SqlOutbox

Parked = dict[str, tuple[str, int, int]]


@pytest.fixture
def ordered(outbox: SqlOutbox) -> Iterator[SqlOutbox]:
    run(outbox, "UPDATE outbox_meta SET lease = 'partition'", "DELETE FROM outbox_lane")
    yield outbox
    run(outbox, "UPDATE outbox_meta SET lease = 'row'", "DELETE FROM outbox_lane")


def run(outbox: SqlOutbox, *statements: str) -> None:
    with outbox.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


class Queue(NamedTuple):
    """A held key: its dead head, and the events behind it."""

    key: str
    messages: list[Message]

    @property
    def head(self) -> str:
        return self.messages[0].event_id


def give_up(outbox: SqlOutbox, numbers: list[int]) -> None:
    """As a relay does; its own store is not used, since it would end the order that is kept here."""
    ids = ",".join(map(str, numbers))
    run(
        outbox,
        "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, attempts, error, error_at)"
        f" SELECT partition_no, lane, id, dest, 'DEAD', 1, 'refused', '2026-01-01' FROM outbox_ready"
        f" WHERE id IN ({ids})",
        f"DELETE FROM outbox_ready WHERE id IN ({ids})",
    )


def moved(outbox: SqlOutbox) -> int:
    with outbox.engine.begin() as connection:
        return move_due(connection, detect(connection), 10)


def dead_key(outbox: SqlOutbox, key: str, behind: int = 2, mode: str = "dead", state: str = "DEAD") -> Queue:
    messages = [event(key=key) for _ in range(1 + behind)]
    numbers = outbox.add(messages)
    give_up(outbox, numbers)
    lane, target, ids = lane_of(key), lane_of("things"), ",".join(map(str, numbers[1:])) or "0"
    due = "NULL" if mode == "dead" else "'2100-01-01'"
    run(
        outbox,
        f"UPDATE outbox_parked SET state = 'HELD', attempts = 0, target = {target} WHERE id IN ({ids})",
        f"UPDATE outbox_parked SET state = '{state}', claims = 2 WHERE id = {numbers[0]}",
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, due_at, since, destination, reason)"
        f" VALUES ({partition_of(lane)}, {lane}, {target}, '{mode}', {numbers[0]}, {due}, '2026-01-01', 'things',"
        " 'refused')",
    )
    return Queue(key, messages)


def modes(outbox: SqlOutbox) -> dict[int, str]:
    with outbox.engine.connect() as connection:
        rows = connection.execute(text("SELECT lane, mode FROM outbox_lane")).all()
        due = connection.execute(text("SELECT count(*) FROM outbox_lane WHERE mode = 'drain' AND due_at IS NULL"))
        assert due.scalar_one() == 0
    return {row[0]: row[1] for row in rows}


def parked(outbox: SqlOutbox) -> Parked:
    with outbox.engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT e.event_id, p.state, p.attempts, p.claims FROM outbox_parked p"
                " JOIN outbox_event e ON e.id = p.id ORDER BY p.id"
            )
        )
        return {row[0]: (row[1], row[2], row[3]) for row in rows}


def audit(outbox: SqlOutbox) -> list[Any]:
    with outbox.engine.connect() as connection:
        return [
            tuple(row)
            for row in connection.execute(text("SELECT replayed_by, reason, attempts, error FROM outbox_replay"))
        ]


def test_a_replay_where_order_is_kept_stays_parked_and_sets_its_key_to_drain(ordered: SqlOutbox) -> None:
    one, other = dead_key(ordered, "a"), dead_key(ordered, "b")
    with ordered.engine.begin() as connection:
        assert replay(connection, [one.head], by="ann", reason="mended") == 1
    found = parked(ordered)
    assert found[one.head] == ("RETRY", 0, 0)
    assert [found[one.event_id][0] for one in one.messages[1:]] == ["HELD", "HELD"]
    assert found[other.head][0] == "DEAD"
    assert modes(ordered) == {lane_of("a"): "drain", lane_of("b"): "dead"}
    assert audit(ordered) == [("ann", "mended", 1, "refused")]
    assert moved(ordered) == 0, "the owner of the partition sends it, in order"
    with ordered.engine.begin() as connection:
        assert replay(connection, [one.head], by="ann", reason="again") == 0


def test_a_replay_of_one_that_is_not_the_head_waits_for_its_turn(ordered: SqlOutbox) -> None:
    queue = dead_key(ordered, "a")
    ids = f"(SELECT id FROM outbox_event WHERE event_id = '{queue.messages[1].event_id}')"
    run(ordered, f"UPDATE outbox_parked SET state = 'DEAD' WHERE id = {ids}")
    with ordered.engine.begin() as connection:
        assert replay(connection, [queue.messages[1].event_id], by="ann", reason="") == 1
    assert modes(ordered) == {lane_of("a"): "dead"}
    assert parked(ordered)[queue.messages[1].event_id] == ("RETRY", 0, 0)


def test_a_replay_of_a_key_that_is_not_held_is_due_for_the_mover(ordered: SqlOutbox) -> None:
    queue = dead_key(ordered, "a", behind=0)
    run(ordered, "DELETE FROM outbox_lane")
    with ordered.engine.begin() as connection:
        assert replay(connection, DeadFilter(), by="ann", reason="") == 1
    assert parked(ordered)[queue.head] == ("RETRY", 0, 0)
    assert moved(ordered) == 1


def test_a_replay_of_thousands_sets_each_hold_to_drain(ordered: SqlOutbox) -> None:
    keys = [f"key-{n}" for n in range(700)]
    give_up(ordered, ordered.add([event(key=key) for key in keys]))
    with ordered.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
                f" SELECT partition_no, lane, {lane_of('things')}, 'dead', id, '2026-01-01', 'things', ''"
                " FROM outbox_parked"
            )
        )
    with ordered.engine.begin() as connection:
        assert replay(connection, DeadFilter(), by="ann", reason="") == 700
    assert set(modes(ordered).values()) == {"drain"}
    assert len(modes(ordered)) == 700


def test_where_rows_are_leased_a_replay_goes_to_the_queue_at_once(outbox: SqlOutbox) -> None:
    queue = dead_key(outbox, "a", behind=0)
    run(outbox, "DELETE FROM outbox_lane")
    with outbox.engine.begin() as connection:
        assert replay(connection, [queue.head], by="ann", reason="") == 1
    assert list(outbox.states().values()) == ["PENDING"]


def test_a_buried_letter_is_kept_for_the_record_and_its_key_goes_on(ordered: SqlOutbox) -> None:
    queue = dead_key(ordered, "a")
    with ordered.engine.begin() as connection:
        with pytest.raises(ConfigError):
            bury(connection, [queue.head], by=" ", reason="obsolete")
        assert bury(connection, [queue.head, queue.messages[1].event_id], by="ann", reason="obsolete") == 1
        assert bury(connection, [queue.head], by="ann", reason="obsolete") == 0
        assert replay(connection, [queue.head], by="ann", reason="") == 0
        found = overview(connection)
    assert parked(ordered)[queue.head][0] == "BURIED"
    assert modes(ordered) == {lane_of("a"): "drain"}
    assert audit(ordered) == [("ann", "buried: obsolete", 1, "refused")]
    assert (found.counts["BURIED"], found.counts["HELD"], found.counts["DEAD"]) == (1, 2, 0)
    with ordered.engine.connect() as connection:
        shown = connection.execute(text("SELECT status FROM outbox_status ORDER BY id")).scalars().all()
    assert shown == ["BURIED", "HELD", "HELD"]


def test_what_is_held_is_listed_with_its_reason(ordered: SqlOutbox) -> None:
    first, second = dead_key(ordered, "ключ"), dead_key(ordered, "b", behind=1, mode="backoff", state="RETRY")
    whole = (
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, due_at, since, destination, reason)"
        f" VALUES (3, -1, {lane_of('things')}, 'away', 0, '2100-01-01', '2026-02-01', 'things', 'no leader')"
    )
    run(ordered, whole)
    with ordered.engine.connect() as connection:
        found = ops.page(connection, destination=None, limit=10)
        assert ops.page(connection, destination=None, limit=1).total == 3
        assert ops.page(connection, destination="others", limit=10) == ([], 0)
        assert ops.page(connection, destination="things", limit=10) == found
    assert found.total == 3
    by_key = {one.key: one for one in found.streams}
    assert found.streams[-1].key is None, "the oldest first"
    one = by_key["ключ"]
    assert (one.partition_no, one.destination, one.mode) == (partition_of(lane_of("ключ")), "things", "dead")
    assert (one.head_event_id, one.waiting, one.due_at, one.reason) == (first.head, 2, None, "refused")
    assert one.since.utcoffset() is not None
    assert (by_key["b"].head_event_id, by_key["b"].waiting, by_key["b"].mode) == (second.head, 1, "backoff")
    assert by_key["b"].due_at is not None
    assert (by_key[None].mode, by_key[None].reason) == ("away", "no leader")
    assert json.dumps(by_key[None]._asdict(), default=str)


def test_releasing_a_key_lets_go_what_waits_and_leaves_the_dead_one_dead(ordered: SqlOutbox) -> None:
    queue, tables = dead_key(ordered, "a"), Transactions(ordered.engine)
    dead_key(ordered, "b")
    assert ops.release_key(tables, "a", "elsewhere") == 0
    assert ops.release_key(tables, "nobody", None) == 0
    assert ops.release_key(tables, "a", "things") == 1
    assert modes(ordered) == {lane_of("a"): "drain", lane_of("b"): "dead"}
    assert parked(ordered)[queue.head][0] == "DEAD"


def test_releasing_a_destination_lets_go_all_its_keys_and_no_others(ordered: SqlOutbox) -> None:
    tables = Transactions(ordered.engine)
    for key in ("a", "b", "c"):
        dead_key(ordered, key, behind=0)
    run(
        ordered,
        f"UPDATE outbox_lane SET target = 9, destination = 'x' WHERE lane = {lane_of('c')}",
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
        f" VALUES (3, {EVERY_LANE}, {lane_of('things')}, 'away', 0, '2026-02-01', 'things', '')",
    )
    assert ops.release_destination(tables, "things") == 3
    assert modes(ordered) == {lane_of("a"): "drain", lane_of("b"): "drain", EVERY_LANE: "drain", lane_of("c"): "dead"}


@pytest.mark.parametrize(("mode", "state"), [("dead", "DEAD"), ("backoff", "RETRY")])
def test_skipping_a_key_buries_its_head_whether_it_is_dead_or_still_tried(
    ordered: SqlOutbox, mode: str, state: str
) -> None:
    queue, tables = dead_key(ordered, "a", mode=mode, state=state), Transactions(ordered.engine)
    other = dead_key(ordered, "b", behind=0)
    assert ops.skip(tables, "nobody", None, by="ann", reason="") == 0
    assert ops.skip(tables, "a", None, by="ann", reason="cannot be right") == 1
    found = parked(ordered)
    assert [found[one.event_id][0] for one in queue.messages] == ["BURIED", "HELD", "HELD"]
    assert found[other.head][0] == "DEAD"
    assert modes(ordered) == {lane_of("a"): "drain", lane_of("b"): "dead"}
    assert audit(ordered) == [("ann", "buried: cannot be right", 1, "refused")]


def test_only_the_deliveries_to_the_held_destination_are_touched(ordered: SqlOutbox) -> None:
    message = event(key="a")
    (number,) = ordered.add([message], [Destination("audit")])
    give_up(ordered, [number])
    lane = lane_of("a")
    for name, dest in (("things", 0), ("audit", 1)):
        run(
            ordered,
            f"UPDATE outbox_parked SET target = {lane_of(name)} WHERE dest = {dest}",
            "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
            f" VALUES ({partition_of(lane)}, {lane}, {lane_of(name)}, 'dead', {number}, '2026-01-01', '{name}', '')",
        )
    streams = [Stream(partition_of(lane), lane, lane_of("audit"))]
    with ordered.engine.begin() as connection:
        assert holds.streams_of_key(connection, "a", "audit") == streams
        assert skip(connection, streams, by="ann", reason="") == 1
    with ordered.engine.connect() as connection:
        states = connection.execute(text("SELECT dest, state FROM outbox_parked ORDER BY dest")).all()
        held = connection.execute(text("SELECT destination, mode FROM outbox_lane")).all()
    assert [tuple(one) for one in states] == [(0, "DEAD"), (1, "BURIED")]
    assert {tuple(one) for one in held} == {("things", "dead"), ("audit", "drain")}


def test_two_operators_at_once_bury_a_letter_once(ordered: SqlOutbox) -> None:
    queues = [dead_key(ordered, f"key-{n}", behind=0) for n in range(20)]
    ids, buried = [one.head for one in queues], list[int]()

    def work(order: list[str]) -> None:
        buried.append(Transactions(ordered.engine).write(lambda c: bury(c, order, by="me", reason="")))

    threads = [threading.Thread(target=work, args=(order,)) for order in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(buried) == 20
    assert len(audit(ordered)) == 20
    assert set(modes(ordered).values()) == {"drain"}


@pytest.mark.parametrize("shared_outbox", ["postgres", "mysql", "mariadb102"], indirect=True)
def test_the_tables_are_not_switched_over_in_the_middle_of_a_replay(ordered: SqlOutbox) -> None:
    queue, began, switched = dead_key(ordered, "a"), threading.Event(), threading.Event()

    def switch() -> None:
        began.wait(10)
        ordered.store("row relay").claim(1)  # its first call switches the tables to row leases
        switched.set()

    thread = threading.Thread(target=switch)
    thread.start()
    with ordered.engine.begin() as connection:
        assert replay(connection, [queue.head], by="ann", reason="") == 1
        began.set()
        assert not switched.wait(0.5)
    thread.join(30)
    assert switched.is_set()
    assert {state for state, _, _ in parked(ordered).values()} == {"RETRY"}
    assert modes(ordered) == {}
