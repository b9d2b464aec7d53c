"""Ordered batches under way with Kafka: what is handed over ahead, and what a failure does to the batches behind it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Rejected, UnderWay, Unknown, Withheld
from pillarbox.publish.kafka.publisher import KafkaPublisher
from pillarbox.publish.kafka.url import parse_kafka_url
from pillarbox.testing.conformance.publisher_world import messages
from tests.unit.test_kafka_ordered import ByKind, Gapless, kinds
from tests.unit.test_kafka_verdicts import THERE, fails

LARGE = fails(KafkaError.MSG_SIZE_TOO_LARGE, b"large")


class Patient(Gapless):
    """Answers only when told to; ``handed`` is all that it was ever given."""

    def __init__(self, answer: Any = lambda _: None) -> None:
        super().__init__(answer)
        self.answers = True
        self.handed: list[bytes] = []
        self.takes = 1_000

    def produce(self, topic: str, value: bytes, key: str | None, partition: int, report: Any, *rest: object) -> None:
        if len(self.queue) >= self.takes:
            raise BufferError
        self.handed.append(value)
        super().produce(topic, value, key, partition, report, *rest)

    def flush(self, timeout: float) -> int:
        return super().flush(timeout) if self.answers else len(self.queue)


class SlowBehind(Patient):
    """Confirms the first six after a second, the others when told to."""

    slow_until = 0.0

    def flush(self, timeout: float) -> int:
        if self.slow_until and not self.answers:
            if time.monotonic() < self.slow_until:
                time.sleep(min(timeout, 0.02))
            elif len(self.queue) > 6:
                later, self.queue = self.queue[6:], self.queue[:6]
                Gapless.flush(self, timeout)
                self.queue = later
            return len(self.queue)
        return super().flush(timeout)


class Lab:
    """A publisher whose first producer is primed and keeps its answers back from now on."""

    def __init__(self, first: Patient, *later: Gapless, deadline: float = 5) -> None:
        self.first = first
        self.client = ByKind(ordered=[first, *later])
        url = parse_kafka_url("kafka://nowhere", deadline=deadline)
        self.publisher = KafkaPublisher(url, deadline=deadline, client=self.client)
        assert kinds(self.publisher.publish_in_order(messages(THERE, 1))) == [Confirmed]
        first.handed.clear()
        first.answers = False

    def begin(self, *batches: list[Message]) -> list[UnderWay]:
        return [self.publisher.begin_in_order(batch) for batch in batches]


def ended(wait: UnderWay) -> list[Outcome]:
    outcomes = wait(1.0)
    while outcomes is None:
        outcomes = wait(1.0)
    return outcomes


def batches(count: int = 6) -> tuple[list[Message], list[Message]]:
    """Two of three keys each, k-0 to k-2."""
    sent = messages(THERE, 2 * count, keys=3)
    return sent[:count], sent[count:]


def test_the_next_batch_is_handed_over_while_the_one_before_waits() -> None:
    lab = Lab(Patient())
    one, two = lab.begin(*batches())
    assert lab.first.handed == [str(n).encode() for n in range(12)]
    assert one(0.01) is None
    lab.first.answers = True
    assert kinds(ended(one)) == kinds(ended(two)) == [Confirmed] * 6


def test_a_batch_that_is_awaited_out_of_turn_waits_for_those_before_it() -> None:
    lab = Lab(Patient())
    one, two = lab.begin(*batches())
    lab.first.answers = True
    assert kinds(ended(two)) == [Confirmed] * 6
    assert kinds(ended(one)) == [Confirmed] * 6


def test_a_batch_that_is_confirmed_late_ends_at_once_and_takes_no_producer_from_the_one_that_waits_behind_it() -> None:
    """The cluster was asked about the topics of the first alone; it had none left, so that waiting seemed senseless."""
    slow = SlowBehind()
    lab = Lab(slow)
    one, two = lab.begin(*batches())
    slow.slow_until = time.monotonic() + 1.0
    started = time.monotonic()
    assert kinds(ended(one)) == [Confirmed] * 6
    assert time.monotonic() - started < 2.5, "nor does it wait for the other's reports"
    assert two(0.01) is None
    slow.answers = True
    assert kinds(ended(two)) == [Confirmed] * 6
    assert slow.handed == [str(n).encode() for n in range(12)], "nothing was sent twice"


def test_nothing_goes_ahead_of_what_found_no_place_in_the_queue() -> None:
    sent = messages(THERE, 18, keys=3)
    lab = Lab(Patient(), deadline=2)
    lab.first.takes = 8
    one, two = lab.begin(sent[:6], sent[6:12])
    assert len(lab.first.handed) == 8
    lab.first.answers = True
    lab.first.takes = 1_000
    assert kinds(ended(one)) == [Confirmed] * 6
    (three,) = lab.begin(sent[12:])
    assert kinds(ended(two)) == kinds(ended(three)) == [Confirmed] * 6
    assert lab.first.handed == [str(n).encode() for n in range(18)]


def test_what_the_first_leaves_unconfirmed_holds_back_its_key_in_the_batch_behind_it() -> None:
    before, behind = batches()
    before[1] = before[1]._replace(payload=b"large")  # key k-1
    second = Patient()
    lab = Lab(Patient(LARGE), Gapless(LARGE), second)
    one, two = lab.begin(before, behind)
    lab.first.answers = True
    assert kinds(ended(one)) == [Confirmed, Rejected, Confirmed, Confirmed, Withheld, Confirmed]
    outcomes = ended(two)
    assert kinds(outcomes) == [Confirmed, Withheld, Confirmed] * 2
    assert isinstance(outcomes[1], Withheld)
    assert before[1].event_id in outcomes[1].reason
    assert not {behind[1].payload, behind[4].payload} & set(second.handed), "no later producer was given them"


def test_a_failure_behind_takes_nothing_from_the_batch_before_it() -> None:
    before, behind = batches()
    behind[0] = behind[0]._replace(payload=b"large")
    lab = Lab(Patient(LARGE), Gapless(LARGE), Gapless(LARGE))
    one, two = lab.begin(before, behind)
    lab.first.answers = True
    assert kinds(ended(one)) == [Confirmed] * 6
    assert kinds(ended(two)) == [Rejected, Confirmed, Confirmed, Withheld, Confirmed, Confirmed]


def test_nothing_goes_ahead_of_a_batch_that_failed() -> None:
    before, behind = batches()
    before[0] = before[0]._replace(payload=b"large")
    lab = Lab(Patient(LARGE), Gapless(LARGE), Gapless(lambda _: None))
    (one,) = lab.begin(before)
    lab.first.answers = True
    lab.first.stuck = False
    with pytest.raises(Exception, match="gap"):
        lab.first.flush(0)
    handed = list(lab.first.handed)
    (two,) = lab.begin(behind)
    assert lab.first.handed == handed
    assert Rejected in kinds(ended(one))
    assert kinds(ended(two)) == [Withheld, Confirmed, Confirmed] * 2


def test_nothing_goes_ahead_while_the_client_has_trouble() -> None:
    lab = Lab(Patient())
    (one,) = lab.begin(batches()[0])
    lab.client._errors[KafkaError._TRANSPORT] = "broker 1 is away"
    (two,) = lab.begin(batches()[1])
    assert len(lab.first.handed) == 6
    lab.first.answers = True
    assert kinds(ended(one)) == kinds(ended(two)) == [Confirmed] * 6


def test_a_producer_that_never_answers_costs_each_batch_its_deadline_and_no_more() -> None:
    before, behind = batches()
    lab = Lab(Patient(), Gapless(lambda _: None), deadline=1)
    one, two = lab.begin(before, behind)
    assert kinds(ended(one)) == [Unknown] * 6
    assert kinds(ended(two)) == [Withheld] * 6, "their keys wait for what may not be there"


def test_a_publisher_that_is_closed_leaves_nothing_behind_that_could_be_sent_later() -> None:
    """Without a message time-out the client would try for ever, long after another relay has sent what follows."""
    lab = Lab(Patient())
    lab.client._producers["ordered"] = lab.first  # type: ignore[assignment]
    one, two = lab.begin(*batches())
    lab.publisher.close()
    assert not lab.first.queue
    assert kinds(ended(one)) == kinds(ended(two)) == [Unknown] * 6
    assert len(lab.first.handed) == 12, "nor is it sent again"


def test_both_ways_of_publishing_share_a_publisher_with_batches_under_way() -> None:
    lab = Lab(Patient())
    one, two = lab.begin(*batches())
    lab.first.answers = True
    assert kinds(lab.publisher.publish(messages(THERE, 2))) == [Confirmed] * 2
    assert kinds(ended(one)) == kinds(ended(two)) == [Confirmed] * 6


def test_an_empty_batch_is_no_work_behind_another_one() -> None:
    lab = Lab(Patient())
    one, two = lab.begin(batches()[0], [])
    assert ended(two) == []
    lab.first.answers = True
    assert kinds(ended(one)) == [Confirmed] * 6
