"""The pieces of sources that decide without a broker: partitions, delays, waiting rooms, headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties

from pillarbox.consume.kafka.partitions import Partitions
from pillarbox.consume.rabbitmq.delays import STEPS_MS, Queue, waiting_queue
from pillarbox.consume.rabbitmq.delivery import copy_properties, without_deaths
from pillarbox.consume.retries import read_retry_headers
from pillarbox.consume.waiting import WaitingRoom
from pillarbox.ports import Incoming

PLACE = ("orders", 0)


@given(st.permutations(range(8)), st.integers(0, 8))
def test_whatever_the_order_of_finishing_only_what_has_no_gap_before_it_is_committed(
    order: list[int], finished: int
) -> None:
    partitions = Partitions()
    partitions.assigned([PLACE])
    positions = [partitions.hand_out(PLACE, offset) for offset in range(8)]
    committed = 0
    for offset in order[:finished]:
        position = positions[offset]
        assert position is not None
        committed = partitions.finish([position])[PLACE]
    done = set(order[:finished])
    assert committed == next(offset for offset in range(9) if offset not in done)


def test_what_was_handed_out_before_a_partition_left_and_came_back_moves_nothing() -> None:
    partitions = Partitions()
    partitions.assigned([PLACE])
    before = partitions.hand_out(PLACE, 5)
    assert before is not None
    assert partitions.revoked([PLACE]) == 1
    assert partitions.hand_out(PLACE, 6) is None
    partitions.assigned([PLACE])
    assert not partitions.holds(before)
    assert partitions.finish([before]) == {}


@given(st.floats(0, 100_000))
def test_a_delay_is_never_shorter_than_was_asked_for_up_to_a_day(seconds: float) -> None:
    retry = Queue("orders.stock.retry", {})
    queue = waiting_queue(retry, seconds, {"x-queue-type": "quorum"})
    if seconds < 0.03:
        assert queue == retry
    else:
        assert queue.arguments["x-message-ttl"] >= min(seconds * 1_000, STEPS_MS[-1])
        assert queue.arguments["x-dead-letter-routing-key"] == retry.name
        assert queue.arguments["x-queue-type"] == "quorum"


def test_a_waiting_room_says_when_it_is_full_and_forgets_what_was_taken_back() -> None:
    room = WaitingRoom(most=3, most_bytes=100)
    messages = [Incoming("orders", {}, b"x" * 10, None, number, False) for number in range(3)]
    for number, message in enumerate(messages):
        assert not room.full
        room.add(message, due=10.0 - number)
    assert room.full
    room.forget(lambda incoming: incoming.position == 1)
    assert not room.full
    assert room.next_in(now=5.0, at_most=60.0) == pytest.approx(3.0)
    assert [one.position for one in room.take(now=20.0, limit=9)] == [2, 0]
    room.add(messages[0]._replace(body=b"x" * 100), due=0.0)
    assert room.full
    assert len(room.take(now=20.0, limit=1)) == 1
    assert not room.full


@pytest.mark.parametrize("due", ["", "tomorrow", "9" * 400, "2026-01-01T00:00:00"])
@pytest.mark.parametrize("attempts", ["", "-1", "many", "9" * 400, "²"])
def test_headers_that_somebody_else_wrote_into_a_retry_topic_break_nothing(due: str, attempts: str) -> None:
    waited = read_retry_headers({"retryDue": due, "retryAttempts": attempts})
    assert waited.attempts == 0
    assert isinstance(waited.due, float)


def test_the_brokers_own_notes_about_a_wait_are_taken_off_and_others_stay() -> None:
    ours, theirs = {"queue": "orders.stock.retry.5000", "count": 1}, {"queue": "orders", "count": 2}
    first = {"x-first-death-queue": "orders.stock.retry.5000", "x-first-death-reason": "expired"}
    headers = {"id": "1", "x-death": [ours, theirs], **first, "x-last-death-queue": "orders"}
    kept = without_deaths(headers, "orders.stock.retry")
    assert kept == {"id": "1", "x-death": [theirs], "x-last-death-queue": "orders"}
    assert without_deaths({"id": "1", "x-death": [ours]}, "orders.stock.retry") == {"id": "1"}


def test_a_copy_goes_to_no_queue_that_the_originals_sender_named() -> None:
    properties = copy_properties(BasicProperties(headers={"CC": ["other"], "BCC": ["more"], "id": "1"}), [("a", "b")])
    assert properties.headers == {"id": "1", "a": "b"}


def test_of_a_retry_that_does_not_fit_the_frame_the_reason_goes_first() -> None:
    original = BasicProperties(headers={"id": "1", "large": "x" * 900})
    added = [("retryAttempts", "1"), ("retryReason", "y" * 500)]
    assert copy_properties(original, added, most=1_000).headers == {**original.headers, "retryAttempts": "1"}
