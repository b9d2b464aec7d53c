"""Kafka's publisher with a client that says what it is told to: each code's outcome, and a producer that breaks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pillarbox.event.destination import Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Rejected, Unavailable, Unknown
from pillarbox.publish.kafka.client import Client, Kind
from pillarbox.publish.kafka.publisher import KafkaPublisher
from pillarbox.publish.kafka.url import parse_kafka_url
from pillarbox.publish.kafka.verdicts import outcome_of
from pillarbox.testing.conformance.publisher_world import message, messages

THERE = Topic("things")
Answer = Callable[[bytes], KafkaError | None]


class ScriptedProducer:
    """Takes messages and reports each at the next flush or poll with what ``answer`` says."""

    def __init__(self, answer: Answer, isrs: int = 3) -> None:
        self.answer = answer
        self.isrs = isrs
        self.queue: list[tuple[bytes, Any]] = []
        self.sent: list[bytes] = []
        self.stuck = False

    def __len__(self) -> int:
        return len(self.queue)

    def produce(self, topic: str, value: bytes, key: str | None, partition: int, report: Any, *rest: object) -> None:
        self.queue.append((value, report))

    def flush(self, timeout: float) -> int:
        queue, self.queue = ([], self.queue) if self.stuck else (self.queue, [])
        for value, report in queue:
            self.sent.append(value)
            report(self.answer(value), SimpleNamespace(partition=lambda: 0, offset=lambda: len(self.sent)))
        return len(self.queue)

    def poll(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        self.stuck = False
        self.answer = lambda value: KafkaError(KafkaError._PURGE_INFLIGHT)

    def list_topics(self, name: str, timeout: float) -> Any:
        one = SimpleNamespace(leader=1, isrs=list(range(self.isrs)), replicas=[0, 1, 2])
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions={0: one})})


class ScriptedClient(Client):
    """Hands out the given producers one after the other; ``min.insync.replicas`` is 2."""

    def __init__(self, *producers: ScriptedProducer) -> None:
        super().__init__(parse_kafka_url("kafka://nowhere", deadline=5))
        self.left = list(producers)
        self.made: dict[str, ScriptedProducer] = {}

    def producer(self, kind: Kind = "batch") -> Any:
        if kind not in self.made:
            self.made[kind] = self.left.pop(0)
        return self.made[kind]

    def discard(self, kind: Kind) -> None:
        self.made.pop(kind, None)

    def admin(self) -> Any:
        def result(timeout: float) -> dict[str, SimpleNamespace]:
            return {"min.insync.replicas": SimpleNamespace(value="2")}

        return SimpleNamespace(
            describe_configs=lambda resources, request_timeout: {
                one: SimpleNamespace(result=result) for one in resources
            }
        )


def publish(batch: list[Message], *producers: ScriptedProducer) -> list[Outcome]:
    return KafkaPublisher(
        parse_kafka_url("kafka://nowhere", deadline=5), deadline=5, client=ScriptedClient(*producers)
    ).publish(batch)


def fails(code: int, *bodies: bytes) -> Answer:
    return lambda value: KafkaError(code) if not bodies or value in bodies else None


def test_C004_entries_3_and_7_of_10_fail_and_only_they_are_not_confirmed() -> None:
    """C004: the report of each message counts, not that of the call."""
    outcomes = publish(messages(THERE, 10), ScriptedProducer(fails(KafkaError.INVALID_RECORD, b"3", b"7")))
    assert [type(outcome) for outcome in outcomes] == [Rejected if at in (3, 7) else Confirmed for at in range(10)]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Rejected("", permanent=True)),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Rejected("", permanent=True)),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Rejected("", permanent=True)),
        (KafkaError.TOPIC_EXCEPTION, Rejected("", permanent=True)),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Rejected("", permanent=False, of_destination=True)),
        (KafkaError._UNKNOWN_TOPIC, Rejected("", permanent=False, of_destination=True)),
        (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable("", broker_answers=True)),
        (KafkaError.LEADER_NOT_AVAILABLE, Unavailable("", broker_answers=True)),
        (KafkaError._QUEUE_FULL, Unavailable("")),
        (KafkaError._MSG_TIMED_OUT, Unknown("", destination_healthy=True)),
        (KafkaError.REQUEST_TIMED_OUT, Unknown("", destination_healthy=True)),
        (KafkaError._PURGE_INFLIGHT, Unknown("", destination_healthy=True)),
        (KafkaError._PURGE_QUEUE, Unknown("", destination_healthy=False)),
        (KafkaError._TRANSPORT, Unknown("", destination_healthy=False)),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, Unknown("", destination_healthy=False)),
        (KafkaError._FATAL, Unknown("", destination_healthy=False)),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Unknown("", destination_healthy=False)),
        (KafkaError.UNKNOWN, Unknown("", destination_healthy=True)),
        (32_000, Unknown("", destination_healthy=True)),
    ],
)
def test_each_code_has_its_class(code: int, outcome: Outcome) -> None:
    found = outcome_of(code, "text")
    assert found._replace(reason="") == outcome
    assert found.reason


def test_a_timeout_is_the_destinations_fault_when_too_few_replicas_are_in_sync() -> None:
    timed_out = fails(KafkaError._MSG_TIMED_OUT)
    (healthy,) = publish([message(THERE)], ScriptedProducer(timed_out, isrs=2))
    (starved,) = publish([message(THERE)], ScriptedProducer(timed_out, isrs=1))
    assert isinstance(healthy, Unknown)
    assert healthy.destination_healthy
    assert isinstance(starved, Unknown)
    assert not starved.destination_healthy
    assert "too few replicas" in starved.reason


def test_after_an_outage_the_cluster_is_asked_before_anything_is_sent() -> None:
    first = ScriptedProducer(fails(KafkaError._MSG_TIMED_OUT), isrs=1)
    publisher = KafkaPublisher(parse_kafka_url("kafka://h", deadline=5), deadline=5, client=ScriptedClient(first))
    publisher.publish([message(THERE, payload=b"1")])
    (outcome,) = publisher.publish([message(THERE, payload=b"2")])
    assert isinstance(outcome, Unavailable)
    assert first.sent == [b"1"]
    first.isrs, first.answer = 3, lambda value: None
    assert isinstance(publisher.publish([message(THERE, payload=b"3")])[0], Confirmed)


def test_a_batch_that_is_too_large_only_together_is_sent_one_by_one() -> None:
    together = ScriptedProducer(fails(KafkaError.MSG_SIZE_TOO_LARGE, b"2", b"3", b"4"))
    alone = ScriptedProducer(fails(KafkaError.MSG_SIZE_TOO_LARGE, b"3"))
    outcomes = publish(messages(THERE, 6), together, alone)
    assert [type(outcome) for outcome in outcomes] == [Rejected if at == 3 else Confirmed for at in range(6)]
    assert alone.sent == [b"2", b"3", b"4"]


def test_a_message_that_produce_itself_refuses_spoils_no_other() -> None:
    class Picky(ScriptedProducer):
        def produce(self, topic: str, value: bytes, *rest: Any) -> None:
            if value == b"1":
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
            super().produce(topic, value, *rest)

    outcomes = publish(messages(THERE, 3), Picky(lambda value: None))
    assert [type(outcome) for outcome in outcomes] == [Confirmed, Rejected, Confirmed]


def test_C079_a_full_client_queue_is_back_pressure() -> None:
    """C079: BufferError drops nothing; reports are served until there is room."""

    class Small(ScriptedProducer):
        def produce(self, *arguments: Any, **named: Any) -> None:
            if len(self.queue) >= 10:
                raise BufferError("Local: Queue full")
            super().produce(*arguments, **named)

        def poll(self, timeout: float) -> int:
            return self.flush(timeout)

    outcomes = publish(messages(THERE, 100), Small(lambda value: None))
    assert [type(outcome) for outcome in outcomes] == [Confirmed] * 100


def test_C091_a_producer_that_breaks_for_good_is_replaced() -> None:
    """C091: a fatal error ends this producer, not the publisher; what has no report is unknown."""

    class Broken(KafkaError):
        def fatal(self) -> bool:
            return True

    first = ScriptedProducer(lambda value: Broken(KafkaError._FATAL))
    second = ScriptedProducer(lambda value: None)
    publisher = KafkaPublisher(
        parse_kafka_url("kafka://h", deadline=5), deadline=5, client=ScriptedClient(first, second)
    )
    assert isinstance(publisher.publish([message(THERE)])[0], Unknown)
    assert isinstance(publisher.publish([message(THERE)])[0], Confirmed)
    assert len(second.sent) == 1


def test_what_has_no_report_at_the_deadline_is_purged_and_its_producer_thrown_away() -> None:
    first, second = ScriptedProducer(lambda value: None), ScriptedProducer(lambda value: None)
    first.stuck = True
    publisher = KafkaPublisher(
        parse_kafka_url("kafka://h", deadline=0.5), deadline=0.5, client=ScriptedClient(first, second)
    )
    (outcome,) = publisher.publish([message(THERE)])
    assert isinstance(outcome, Unknown)
    assert len(first) == 0
    assert isinstance(publisher.publish([message(THERE)])[0], Confirmed)
    assert len(second.sent) == 1
