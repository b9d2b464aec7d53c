"""A Kafka broker behind a network that breaks, and one that refuses: each outcome says what is really known."""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from pillarbox.errors import AccessRefused, BadUrl, BrokerUnavailable
from pillarbox.event.destination import Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Publisher, Rejected, Unavailable, Unknown
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message, messages
from tests.kafka_broker import KafkaBroker
from tests.servers import unique


@pytest.fixture
def broker(lone_kafka: KafkaBroker) -> KafkaBroker:
    return lone_kafka


pytestmark = pytest.mark.services


# The network --------------------------------------------------------------------------------------------------------


def test_C055_a_report_that_is_lost_leaves_the_outcome_unknown_although_the_broker_has_it(broker: KafkaBroker) -> None:
    """C055: what was sent and not reported is Unknown; even what the client calls 'purged in queue' may be there."""
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(broker.url, deadline=5)) as publisher:
        assert confirmed(publisher.publish([message(there, payload=b"before")])) == 1
        broker.proxy.lose_answers()
        outcomes = publisher.publish(messages(there, 10))
        assert [type(outcome) for outcome in outcomes] == [Unknown] * 10
        assert not any(outcome.destination_healthy for outcome in outcomes if isinstance(outcome, Unknown))
        assert len(records(broker, there.name)) == 11
        broker.proxy.heal()
        wait_for(lambda: confirmed(publisher.publish([message(there)])) == 1)


def test_C058_publishing_resumes_by_itself_after_a_lost_connection(broker: KafkaBroker) -> None:
    """C058: no restart, and nothing is given back when the broker is there again at once."""
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(broker.url, deadline=10)) as publisher:
        for _ in range(3):
            assert confirmed(publisher.publish(messages(there, 10))) == 10
            broker.proxy.cut()
        assert confirmed(publisher.publish(messages(there, 10))) == 10


def test_an_outage_is_told_quickly_and_nothing_of_it_is_sent_later(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(broker.url, deadline=10)) as publisher:
        publisher.publish([message(there, payload=b"before")])
        broker.proxy.refuse()
        started = time.monotonic()
        first = publisher.publish(messages(there, 50))  # this batch meets the outage
        assert not any(isinstance(outcome, (Confirmed, Rejected)) for outcome in first)
        assert time.monotonic() - started < 8, "the outage is obvious: the deadline need not pass"
        started = time.monotonic()
        second = publisher.publish(messages(there, 50))  # this one knows of it beforehand
        assert {type(outcome) for outcome in second} == {Unavailable}
        assert time.monotonic() - started < 4
        broker.proxy.heal()
        wait_for(lambda: confirmed(publisher.publish([message(there, payload=b"after")])) == 1)
    assert set(records(broker, there.name)) == {b"before", b"after"}


def test_a_frozen_broker_costs_the_deadline_and_no_more(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(broker.url, deadline=4)) as publisher:
        publisher.publish([message(there)])
        broker.proxy.freeze()
        started = time.monotonic()
        outcomes = publisher.publish(messages(there, 10))
        assert time.monotonic() - started < 5
        assert not any(isinstance(outcome, (Confirmed, Rejected)) for outcome in outcomes)
        broker.proxy.heal()
        wait_for(lambda: confirmed(publisher.publish([message(there)])) == 1)


def test_C079_a_small_client_queue_is_back_pressure_and_only_a_report_confirms(broker: KafkaBroker) -> None:
    """C079: far more messages than the client's queue holds, and the broker goes away in the middle."""
    there = Topic(broker.topic(unique("t"), 2))
    url = f"{broker.url}?queue.buffering.max.messages=1000&linger.ms=1"
    batch = messages(there, 20_000)
    with closing(open_publisher(url, deadline=5)) as publisher:
        answers = in_background(publisher, batch)
        wait_for(lambda: sum(ends(broker, there.name)) > 2_000)
        broker.proxy.refuse()
        outcomes = answers()
    assert len(outcomes) == 20_000
    broker.proxy.heal()
    there_now = records(broker, there.name)
    sure = [one for one, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, Confirmed)]
    assert 0 < len(sure) < 20_000
    assert {one.payload for one in sure} <= set(there_now)
    assert not any(isinstance(outcome, Rejected) for outcome in outcomes)


def test_a_small_client_queue_loses_nothing(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t"), 2))
    url = f"{broker.url}?queue.buffering.max.messages=500"
    with closing(open_publisher(url, deadline=20)) as publisher:
        assert confirmed(publisher.publish(messages(there, 5_000))) == 5_000
    assert len(set(records(broker, there.name))) == 5_000


def test_what_found_no_room_in_the_clients_queue_is_unavailable_and_was_never_sent(broker: KafkaBroker) -> None:
    """The queue takes 100, and the broker answers nothing: those may be there, the others cannot be."""
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(f"{broker.url}?queue.buffering.max.messages=100", deadline=3)) as publisher:
        assert confirmed(publisher.publish([message(there)])) == 1
        broker.proxy.lose_answers()
        outcomes = publisher.publish(messages(there, 300))
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [Unknown] * 100 + [Unavailable] * 200
        assert "Queue full" in outcomes[-1].reason
        assert sum(ends(broker, there.name)) <= 101
        broker.proxy.heal()


# The broker's refusals ----------------------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_meanwhile_is_missing_and_retryable(broker: KafkaBroker) -> None:
    gone = Topic(broker.topic(unique("t")))
    with closing(open_publisher(broker.url, deadline=10)) as publisher:
        assert confirmed(publisher.publish([message(gone)])) == 1
        admin = broker.admin()
        admin.delete_topics([gone.name])[gone.name].result(10)
        (outcome,) = publisher.publish([message(gone)])
    assert isinstance(outcome, Rejected)
    assert not outcome.permanent


def test_a_topic_that_may_not_be_written_is_refused_for_good_and_its_neighbours_are_not(broker: KafkaBroker) -> None:
    mine, secret = Topic(broker.topic(unique("t"))), Topic(broker.topic(unique("t")))
    broker.allow_alice(mine.name)
    with closing(open_publisher(alice(broker, "wonderland"), deadline=10)) as publisher:
        outcomes = publisher.publish([message(mine), message(secret), message(mine)])
    assert confirmed([outcomes[0], outcomes[2]]) == 2
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].permanent
    assert "not authorised" in outcomes[1].reason


def test_an_impossible_topic_name_is_refused_for_good(broker: KafkaBroker) -> None:
    with closing(open_publisher(broker.url, deadline=10)) as publisher:
        for name in ("no spaces allowed", "x" * 255, "☃"):
            (outcome,) = publisher.publish([message(Topic(name))])
            assert isinstance(outcome, Rejected), name
            assert outcome.permanent, name


# At start -----------------------------------------------------------------------------------------------------------


def test_PB_008_a_wrong_password_is_refused_at_once(broker: KafkaBroker) -> None:
    started = time.monotonic()
    with pytest.raises(AccessRefused) as caught:
        open_publisher(alice(broker, "s3cret"), deadline=10)
    assert time.monotonic() - started < 4
    assert "s3cret" not in str(caught.value)


def test_PB_005_a_broker_that_is_away_or_frozen_at_start_is_named(broker: KafkaBroker) -> None:
    for trouble in (broker.proxy.refuse, broker.proxy.freeze):
        trouble()
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable) as caught:
            open_publisher(broker.url, deadline=3)
        assert time.monotonic() - started < 4
        assert f"127.0.0.1:{broker.proxy.port}" in str(caught.value)
        broker.proxy.heal()


def test_PB_005_TLS_spoken_to_a_plain_port_says_so(broker: KafkaBroker) -> None:
    with pytest.raises(BrokerUnavailable, match="TLS"):
        open_publisher(f"{broker.url}?security.protocol=SSL", deadline=5)


def test_PB_002_an_option_that_the_client_does_not_know_is_a_bad_URL(broker: KafkaBroker) -> None:
    with pytest.raises(BadUrl, match=r"no\.such\.option"):
        open_publisher(f"{broker.url}?no.such.option=1", deadline=5)


# Helpers ------------------------------------------------------------------------------------------------------------


def alice(broker: KafkaBroker, password: str) -> str:
    return f"kafka://alice:{password}@{broker.sasl_address}?security.protocol=SASL_PLAINTEXT"


def confirmed(outcomes: list[Outcome]) -> int:
    return sum(isinstance(outcome, Confirmed) for outcome in outcomes)


def ends(broker: KafkaBroker, topic: str) -> list[int]:
    with closing(Consumer({"bootstrap.servers": broker.direct, "group.id": "reader", "log_level": 0})) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in partitions]


def records(broker: KafkaBroker, topic: str) -> list[bytes]:
    """All bodies in the topic, read past the proxy."""
    with closing(Consumer({"bootstrap.servers": broker.direct, "group.id": "reader", "log_level": 0})) as consumer:
        consumer.assign([TopicPartition(topic, n, 0) for n in range(len(ends(broker, topic)))])
        found: list[bytes] = []
        deadline = time.monotonic() + 15
        while len(found) < sum(ends(broker, topic)) and time.monotonic() < deadline:
            found.extend(one.value() for one in consumer.consume(1_000, timeout=0.2))
        return found


def in_background(publisher: Publisher, batch: list[Message]) -> Callable[[], list[Outcome]]:
    """Publish on another thread; the result waits for it."""
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.extend(publisher.publish(batch)))
    thread.start()

    def result() -> list[Outcome]:
        thread.join(60)
        return found

    return result


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
