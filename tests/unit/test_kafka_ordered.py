"""Ordered publishing to Kafka with producers that do as they are told: what is handed over when, and what it means."""

from __future__ import annotations

from collections import Counter
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Rejected, Unknown, Withheld
from pillarbox.publish.kafka.client import Kind
from pillarbox.publish.kafka.publisher import KafkaPublisher
from pillarbox.publish.kafka.url import parse_kafka_url
from pillarbox.testing.conformance.publisher_world import messages
from tests.unit.test_kafka_verdicts import THERE, Answer, ScriptedClient, ScriptedProducer, fails


class Gapless(ScriptedProducer):
    """One partition, each message its own request: the first that fails is fatal, and those behind it stay queued."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.batches: list[list[bytes]] = []

    def flush(self, timeout: float) -> int:
        if self.stuck:
            return len(self.queue)
        self.batches.append([value for value, _ in self.queue])
        while self.queue:
            value, report = self.queue.pop(0)
            failed = self.answer(value)
            report(failed, _Report())
            if failed is not None:
                self.stuck = True
                raise KafkaException(KafkaError(KafkaError._GAPLESS_GUARANTEE, "a gap", True))
        return 0

    def purge(self, in_flight: bool = True) -> None:
        code = KafkaError._PURGE_INFLIGHT if in_flight else KafkaError._PURGE_QUEUE
        queue, self.queue = self.queue, []
        for _, report in queue:
            report(KafkaError(code), _Report())


class Silent(Gapless):
    """Never answers."""

    def flush(self, timeout: float) -> int:
        return len(self.queue)


class _Report:
    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0


class ByKind(ScriptedClient):
    """Each kind has its producers, one after the other."""

    def __init__(self, **producers: list[ScriptedProducer]) -> None:
        super().__init__()
        self.by_kind = {"batch": [ScriptedProducer(lambda _: None)], **producers}

    def producer(self, kind: Kind = "batch") -> Any:
        return self.by_kind[kind][0]

    def discard(self, kind: Kind) -> None:
        self.by_kind[kind].pop(0)
        self.primed.forget()


def publish(batch: list[Message], deadline: float = 5, **producers: list[ScriptedProducer]) -> list[Outcome]:
    url = parse_kafka_url("kafka://nowhere", deadline=deadline)
    return KafkaPublisher(url, deadline=deadline, client=ByKind(**producers)).publish_in_order(batch)


def kinds(outcomes: list[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


def test_a_new_producer_is_given_one_message_of_each_key_and_then_the_rest() -> None:
    producer = Gapless(lambda _: None)
    assert set(kinds(publish(messages(THERE, 6, keys=2), ordered=[producer]))) == {Confirmed}
    assert producer.batches == [[b"0", b"1"], [b"2", b"3", b"4", b"5"]]


def test_a_refused_message_ends_its_producer_and_only_its_key_waits() -> None:
    sent = messages(THERE, 9, keys=3)
    sent[4] = sent[4]._replace(payload=b"large")
    first, second = Gapless(fails(KafkaError.MSG_SIZE_TOO_LARGE, b"large")), Gapless(lambda _: None)
    outcomes = publish(sent, ordered=[first, second])
    assert kinds(outcomes) == [Confirmed] * 4 + [Rejected, Confirmed, Confirmed, Withheld, Confirmed]
    assert second.batches == [[b"5", b"6"], [b"8"]], "primed anew"


def test_larger_messages_than_a_refused_one_are_tried_alone() -> None:
    sent = messages(THERE, 6, keys=6)
    sent[2] = sent[2]._replace(payload=b"x" * 10)
    sent[4] = sent[4]._replace(payload=b"x" * 11)
    first, second = Gapless(fails(KafkaError.MSG_SIZE_TOO_LARGE, b"x" * 10)), Gapless(lambda _: None)
    alone = ScriptedProducer(fails(KafkaError.MSG_SIZE_TOO_LARGE))
    outcomes = publish(sent, ordered=[first, second], alone=[alone])
    assert Counter(kinds(outcomes)) == {Confirmed: 4, Rejected: 2}
    assert alone.sent == [b"x" * 11]


def test_nothing_is_tried_again_after_a_failure_that_names_nobody() -> None:
    producer = Gapless(fails(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"2"))
    outcomes = publish(messages(THERE, 6, keys=2), ordered=[producer])
    assert kinds(outcomes) == [Confirmed, Confirmed] + [Unknown] * 4


def test_what_the_deadline_finds_in_the_producer_is_unknown_and_what_was_not_handed_over_withheld() -> None:
    outcomes = publish(messages(THERE, 6, keys=2), deadline=1, ordered=[Silent(lambda _: None)])
    assert kinds(outcomes) == [Unknown, Unknown] + [Withheld] * 4
