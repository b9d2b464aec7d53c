"""What a consumer decides, without database or broker."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties

import pillarbox.testing
from pillarbox.consume.dead import dead_headers, dead_name
from pillarbox.consume.incoming import Prepared, Unhandled, prepare
from pillarbox.consume.kafka.partitions import Partitions
from pillarbox.consume.kafka.source import readable_headers
from pillarbox.consume.plan import MAX_REASON, RetryLater, SetAside, after_failure, reason_of
from pillarbox.consume.rabbitmq.delivery import MAX_PROPERTIES, copy_properties, text_headers
from pillarbox.consume.registrations import Registrations
from pillarbox.errors import CannotDecode
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Incoming

PLACE = ("orders", 0)


def test_every_name_for_tests_is_there() -> None:
    for name in pillarbox.testing.__all__:
        assert getattr(pillarbox.testing, name) is not None


# After a failure ------------------------------------------------------------------------------------------------------


def test_a_failure_is_tried_again_until_the_attempts_are_used_up() -> None:
    policy = RetryPolicy(base=1, cap=8, max_attempts=3, jitter=False)
    error = ValueError("no such order")
    assert after_failure(error, 1, policy, 0.5) == RetryLater(1.0, 1)
    assert after_failure(error, 2, policy, 0.5) == RetryLater(2.0, 2)
    assert after_failure(error, 3, policy, 0.5) == SetAside("ValueError: no such order", 3)
    assert after_failure(error, 1, policy, 0.5, final=True) == SetAside("ValueError: no such order", 1)


@given(st.text())
def test_a_reason_is_one_line_that_fits_a_header(text: str) -> None:
    reason = reason_of(ValueError(text))
    assert 0 < len(reason) <= MAX_REASON
    assert reason.isprintable() or not {"\n", "\r", "\0"} & set(reason)
    reason.encode()


def test_a_dead_letter_says_where_it_stood_and_why_it_is_there() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = dead_headers(source="orders", consumer="stock", position="0/17", reason="r", attempts=5, at=moment)
    assert dict(made) == {
        "deadLetterReason": "r",
        "deadLetterAttempts": "5",
        "deadLetterConsumer": "stock",
        "deadLetterSource": "orders",
        "deadLetterPosition": "0/17",
        "deadLetterAt": "2026-01-02T03:04:05.000000Z",
    }
    assert dead_name("orders", "stock") == "orders.stock.dead"


# What came ------------------------------------------------------------------------------------------------------------

GOOD = {"id": "1", "eventType": "order.created", "occurredAt": "2026-01-02T03:04:05Z"}


def incoming(headers: dict[str, str], body: bytes = b"{}") -> Incoming:
    return Incoming("orders", headers, body, None, None, redelivered=False)


def test_an_event_of_a_type_without_handler_is_told_apart() -> None:
    assert prepare(incoming(GOOD), Registrations()) == Unhandled("1", "order.created")


@pytest.mark.parametrize(
    "change", [{"id": ""}, {"id": "x" * 101}, {"id": " 1"}, {"id": "1 "}, {"id": "a\0b"}, {"id": "\udc80"}]
)
def test_an_id_that_the_inbox_cannot_hold_apart_from_others_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(CannotDecode):
        prepare(incoming(GOOD | change), Registrations())


def test_the_text_of_an_event_for_logs_names_it() -> None:
    assert str(Prepared("1", "order.created", "orders", ())) == "event 1 (order.created) of 'orders'"


def test_amqp_header_values_become_text() -> None:
    table = {"a": "x", "b": b"\xff", "n": 5, "t": True, "none": None, "deaths": [{"queue": "q", "count": 2}]}
    assert text_headers(table) == {
        "a": "x",
        "b": "\ufffd",
        "n": "5",
        "t": "true",
        "deaths": '[{"queue": "q", "count": 2}]',
    }


def test_an_amqp_header_whose_name_is_no_text_stops_nobody() -> None:
    headers = text_headers({**GOOD, b"\xff\xfe": "x"})  # type: ignore[dict-item]  # so pika delivers it
    assert headers["\ufffd\ufffd"] == "x"
    assert isinstance(prepare(incoming(headers), Registrations()), Unhandled)


def test_a_dead_letter_leaves_out_the_largest_headers_rather_than_burst_the_frame() -> None:
    added = [("deadLetterReason", "r" * 2_000)]
    small = BasicProperties(headers={"a": "1"}, message_id="m")
    assert copy_properties(small, added).headers == {"a": "1", "deadLetterReason": "r" * 2_000}
    large = BasicProperties(headers={"a": "1", "big": "x" * 130_800, "b": "2"}, message_id="m", expiration="60000")
    copied = copy_properties(large, added)
    assert copied.headers == {"a": "1", "b": "2", "deadLetterReason": "r" * 2_000, "deadLetterLeftOut": "big"}
    assert sum(map(len, copied.encode())) <= MAX_PROPERTIES
    assert large.headers["big"] == "x" * 130_800


def test_a_kafka_header_whose_name_is_no_text_stops_nobody() -> None:
    class Message:
        def headers(self) -> list[tuple[str, bytes]]:
            raise SystemError("<method 'headers'> returned a result with an exception set")  # so the client says it

    assert readable_headers(Message()) == []  # type: ignore[arg-type]


# Kafka's partitions ---------------------------------------------------------------------------------------------------


def test_the_offset_to_commit_is_below_everything_unfinished() -> None:
    partitions = Partitions()
    partitions.assigned([PLACE])
    five, six, seven = (partitions.hand_out(PLACE, offset) for offset in (5, 6, 7))
    assert five is not None
    assert six is not None
    assert seven is not None
    assert partitions.finish([six]) == {PLACE: 5}
    assert partitions.finish([five]) == {PLACE: 7}
    assert partitions.finish([seven]) == {PLACE: 8}


def test_nothing_that_was_handed_out_before_a_revocation_is_committed_after_it() -> None:
    partitions = Partitions()
    partitions.assigned([PLACE])
    before = partitions.hand_out(PLACE, 5)
    assert before is not None
    assert partitions.holds(before)
    assert partitions.revoked([PLACE]) == 1
    assert not partitions.holds(before)
    assert partitions.finish([before]) == {}
    assert partitions.hand_out(PLACE, 6) is None
    partitions.assigned([PLACE])  # back again: another holding
    assert not partitions.holds(before)
    assert partitions.finish([before]) == {}
