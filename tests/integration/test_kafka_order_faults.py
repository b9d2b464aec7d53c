"""Order per key on Kafka while the network breaks and the broker refuses: nothing overtakes what is not confirmed."""

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from pillarbox.errors import BadUrl
from pillarbox.event.destination import Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Rejected, Unknown, Withheld
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_order import assert_stopped_at, in_order, resend
from pillarbox.testing.conformance.publisher_world import Arrived, messages
from tests.kafka_broker import KafkaBroker
from tests.ordered_pump import OrderedPump
from tests.servers import unique

pytestmark = pytest.mark.services


@pytest.fixture
def broker(lone_kafka: KafkaBroker) -> KafkaBroker:
    return lone_kafka


# The network --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["cut", "lose_answers", "refuse", "freeze"])
def test_C055_no_key_is_overtaken_or_lost_however_the_network_breaks(broker: KafkaBroker, trouble: str) -> None:
    """C055: what was sent without a report is sent again, before all that stands behind it."""
    there = Topic(broker.topic(unique("t"), 2))
    with closing(open_publisher(broker.url, deadline=4)) as publisher, OrderedPump(publisher, there) as pump:
        for _ in range(2):
            getattr(broker.proxy, trouble)()
            if trouble != "cut":  # the client gets over that by itself
                pump.wait_for_trouble()
            broker.proxy.heal()
            pump.wait_for_confirms(400)
    assert not any(isinstance(outcome, Rejected) for outcome in pump.odd)
    assert pump.longest < 5
    assert in_order(pump.sent, arrived(broker, there.name))


def test_what_the_deadline_overtakes_is_unknown_and_not_confirmed_behind_it(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(broker.url, deadline=4)) as publisher:
        assert set(map(type, publisher.publish_in_order(messages(there, 10)))) == {Confirmed}
        broker.proxy.lose_answers()
        outcomes = publisher.publish_in_order(messages(there, 300, keys=3))
        assert set(map(type, outcomes)) == {Unknown}, "any of them may be there"
        broker.proxy.heal()


# The broker's refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", range(4))
def test_behind_a_refused_first_message_of_a_new_producer_nothing_is_accepted(
    broker: KafkaBroker, attempt: int
) -> None:
    """Pins the reason for priming: without it the broker took the second request in one of ten runs.

    It knows nothing of the producer yet, so any sequence number will do for the first that it takes.
    """
    there = Topic(broker.topic(unique("t"), max_message_bytes="1000000"))
    sent = messages(there, 2_000, keys=1)
    sent[0] = sent[0]._replace(payload=bytes(1_100_000 + attempt))
    with closing(open_publisher(broker.url, deadline=10)) as publisher:
        outcomes = publisher.publish_in_order(sent)
    assert_stopped_at(sent, outcomes, 0)
    assert arrived(broker, there.name) == []


def test_many_messages_that_are_too_large_stop_their_keys_and_no_other(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t"), 3, max_message_bytes="1000000"))
    sent = messages(there, 1_000, keys=100)
    for at in range(300, 360):  # keys 0 to 59, the fourth of each
        sent[at] = sent[at]._replace(payload=bytes(1_100_000 + (at * 7_919) % 1_000))
    with closing(open_publisher(broker.url, deadline=20)) as publisher:
        started = time.monotonic()
        outcomes = publisher.publish_in_order(sent)
        assert time.monotonic() - started < 12
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds[:300] == [Confirmed] * 300
        assert kinds[300:360] == [Rejected] * 60
        assert kinds[400:460] == [Withheld] * 60
        assert {kinds[at] for at in range(1_000) if at % 100 >= 60} == {Confirmed}
        rest = [one for one, outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, Withheld)]
        resend(publisher.publish_in_order, rest)
    good = [one for one, kind in zip(sent, kinds, strict=True) if kind is not Rejected]
    assert in_order(good, arrived(broker, there.name))


def test_a_topic_that_takes_less_than_a_batch_gets_smaller_batches(broker: KafkaBroker) -> None:
    """C060: a record batch is refused as a whole, and each message is judged by its own size."""
    there = Topic(broker.topic(unique("t"), max_message_bytes="5000"))
    sent = messages(there, 500, keys=5)
    sent[250] = sent[250]._replace(payload=bytes(6_000))
    with closing(open_publisher(broker.url, deadline=20)) as publisher:
        outcomes = publisher.publish_in_order(sent)
        assert_stopped_at(sent, outcomes, 250)
        rest = [one for one, outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, Withheld)]
        started = time.monotonic()
        assert set(map(type, publisher.publish_in_order(rest))) == {Confirmed}
        assert time.monotonic() - started < 2, "it has learnt"
    assert in_order(sent[:250] + sent[251:], arrived(broker, there.name))


def test_a_message_larger_than_the_clients_queue_goes_alone_and_in_its_place(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t"), 2, max_message_bytes="3000000"))
    sent = messages(there, 60, keys=2)
    for at in (20, 21, 40):
        sent[at] = sent[at]._replace(payload=bytes(2_000_000))
    with closing(open_publisher(f"{broker.url}?queue.buffering.max.kbytes=1024", deadline=20)) as publisher:
        assert set(map(type, publisher.publish_in_order(sent[:30]))) == {Confirmed}
        assert set(map(type, publisher.publish(sent[30:]))) == {Confirmed}
    assert in_order(sent[:30], [one for one in arrived(broker, there.name) if one.headers["id"] in ids(sent[:30])])


def test_a_topic_deleted_in_between_stops_no_other(broker: KafkaBroker) -> None:
    gone, there = Topic(broker.topic(unique("t"))), Topic(broker.topic(unique("t")))
    sent = [one for pair in zip(messages(gone, 60), messages(there, 60), strict=True) for one in pair]
    with closing(open_publisher(broker.url, deadline=10)) as publisher:
        assert set(map(type, publisher.publish_in_order(sent[:40]))) == {Confirmed}
        admin = broker.admin()
        admin.delete_topics([gone.name])[gone.name].result(10)
        outcomes = publisher.publish_in_order(sent[40:])
    assert set(map(type, outcomes[1::2])) == {Confirmed}
    assert isinstance(outcomes[0], Rejected)
    assert outcomes[0].of_destination
    assert {type(outcome) for outcome in outcomes[::2]} <= {Rejected, Withheld}


def test_PB_002_a_partitioner_that_scatters_keys_is_refused_where_order_is_asked_for(broker: KafkaBroker) -> None:
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(f"{broker.url}?partitioner=random", deadline=10)) as publisher:
        assert set(map(type, publisher.publish(messages(there, 10)))) == {Confirmed}
        with pytest.raises(BadUrl, match="scatters"):
            publisher.publish_in_order(messages(there, 10))


# Helpers ------------------------------------------------------------------------------------------------------------


def ids(sent: list[Message]) -> set[str]:
    return {one.event_id for one in sent}


def arrived(broker: KafkaBroker, topic: str) -> list[Arrived]:
    """All in the topic, read past the proxy, in order within a partition."""
    with closing(Consumer({"bootstrap.servers": broker.direct, "group.id": "reader", "log_level": 0})) as consumer:
        numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        end = sum(consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in numbers)
        consumer.assign([TopicPartition(topic, n, 0) for n in numbers])
        found: list[Arrived] = []
        deadline = time.monotonic() + 20
        while len(found) < end and time.monotonic() < deadline:
            for one in consumer.consume(1_000, timeout=0.2):
                headers = {name: value.decode() for name, value in one.headers()}
                found.append(Arrived(headers, one.value(), one.key().decode(), one.partition(), one.offset()))
        return found
