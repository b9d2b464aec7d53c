"""What keeps its order: streams, the gate before them, and RabbitMQ's batch that frees one message by another."""

from collections import Counter

from pillarbox.event.destination import Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Rejected, Unavailable, Unknown, Withheld
from pillarbox.publish.kafka.priming import PRIMED_FOR, Primed
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.publish.rabbitmq.batch import Batch
from pillarbox.publish.streams import Gate, stream_of
from pillarbox.testing.conformance.publisher_world import message, messages

THERE, ELSEWHERE = Topic("there"), Topic("elsewhere")


def test_a_stream_is_a_destination_and_key_and_without_a_key_there_is_none() -> None:
    assert stream_of(message(THERE, key="a")) == stream_of(message(THERE, key="a"))
    assert stream_of(message(THERE, key="a")) != stream_of(message(ELSEWHERE, key="a"))
    assert stream_of(message(THERE, key="a")) != stream_of(message(THERE, key="A"))
    assert stream_of(message(THERE, key="")) is not None
    assert stream_of(message(THERE, key=None)) is None


def test_a_closed_gate_stops_its_stream_in_the_name_of_the_first() -> None:
    gate = Gate()
    first, second = messages(THERE, 2, keys=1)
    assert not gate
    gate.close(first)
    gate.close(second)
    assert gate
    stopped = gate.stops(message(THERE, key="k-0"))
    assert stopped is not None
    assert first.event_id in stopped.reason
    assert gate.stops(message(ELSEWHERE, key="k-0")) is None
    gate.close(message(THERE, key=None))
    assert gate.stops(message(THERE, key=None)) is None


# RabbitMQ's batch ---------------------------------------------------------------------------------------------------


def test_one_message_of_each_key_is_ready_and_its_confirm_frees_the_next() -> None:
    batch = Batch(messages(THERE, 7, keys=3), ordered=True)
    assert batch.ready() == {"there": [0, 1, 2]}
    assert batch.confirm([0, 2], Confirmed()) == [3, 5]
    assert batch.confirm([0], Confirmed()) == [], "a second confirm frees nobody"
    assert batch.confirm([3], Confirmed()) == [6]
    assert batch.confirm([1, 4, 5, 6], Confirmed()) == [4]
    assert batch.finished


def test_a_failure_withholds_all_that_stand_behind_it() -> None:
    sent = messages(THERE, 7, keys=3)
    batch = Batch(sent, ordered=True)
    batch.ready()
    batch.confirm([0], Confirmed())
    batch.fail([3], Rejected("no", permanent=False))
    batch.fail_rest(Unavailable("gone"))
    kinds = [type(outcome) for outcome in batch.outcomes()]
    assert kinds == [Confirmed, Unavailable, Unavailable, Rejected, Withheld, Withheld, Withheld]
    waits = [outcome.reason for outcome in batch.outcomes() if isinstance(outcome, Withheld)]
    assert [sent[at].event_id in reason for at, reason in zip((1, 2, 3), waits, strict=True)] == [True] * 3
    assert batch.finished


def test_messages_without_a_key_are_all_ready() -> None:
    batch = Batch([one._replace(key=None) for one in messages(THERE, 3)], ordered=True)
    assert batch.ready() == {"there": [0, 1, 2]}
    batch.fail([0], Unknown("late", destination_healthy=True))
    assert not batch.has(1)


# The memory publisher -----------------------------------------------------------------------------------------------


def test_failures_injected_in_memory_stop_their_stream() -> None:
    answers: dict[bytes, Outcome] = {b"4": Unknown("lost", destination_healthy=True), b"5": Unavailable("away")}
    asked: list[Message] = []

    def answer(one: Message) -> Outcome | None:
        asked.append(one)
        return answers.get(one.payload)

    publisher = MemoryPublisher(answer)
    outcomes = publisher.publish_in_order(messages(THERE, 12, keys=3))
    assert Counter(map(type, outcomes)) == {Confirmed: 6, Unknown: 1, Unavailable: 1, Withheld: 4}
    assert [one.payload for one in publisher.arrived] == [b"0", b"1", b"2", b"3", b"4", b"6", b"9"]
    assert len(asked) == 8
    publisher.down = True
    outcomes = publisher.publish_in_order(messages(THERE, 6, keys=3))
    assert Counter(map(type, outcomes)) == {Unavailable: 3, Withheld: 3}


# Kafka's priming ----------------------------------------------------------------------------------------------------


def test_a_partition_is_primed_by_a_confirm_and_not_for_ever() -> None:
    now = [1_000.0]
    primed = Primed(by_murmur2=True, monotonic=lambda: now[0])
    primed.note("t", 3)
    now[0] += PRIMED_FOR - 1
    primed.note("t", 4)
    assert primed.partitions("t") == {3, 4}
    now[0] += 2
    assert primed.partitions("t") == {4}
    primed.forget()
    assert primed.partitions("t") == set()


def test_where_a_key_goes_is_known_for_the_partitioner_of_java_only() -> None:
    assert Primed(by_murmur2=True).where("order-7", 6) in range(6)
    assert Primed(by_murmur2=True).where("order-7", 0) is None
    assert Primed(by_murmur2=False).where("order-7", 6) is None
