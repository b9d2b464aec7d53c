"""Order per key on RabbitMQ while queues reject, exchanges vanish and the network breaks."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import make_url

from pillarbox.event.destination import Exchange, Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Rejected, Unavailable, Unknown, Withheld
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_order import assert_stopped_at, in_order, resend
from pillarbox.testing.conformance.publisher_world import message, messages
from tests.management import Management
from tests.ordered_pump import OrderedPump
from tests.rabbitmq_broker import QUEUE, RabbitBroker, rabbit_broker


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[RabbitBroker]:
    with rabbit_broker(rabbitmq_url) as broker:
        yield broker


# The broker's refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_that_rejects_in_the_middle_of_a_key_lets_nothing_of_it_overtake(
    broker: RabbitBroker, kind: str
) -> None:
    limited = {"x-queue-type": kind, "x-max-length": 25, "x-overflow": "reject-publish"}
    broker.channel.queue_declare("full", durable=True, arguments=limited)
    sent = messages(Exchange("", "full"), 100, keys=4)
    taken: list[bytes] = []
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish_in_order(sent)
        for key in ("k-0", "k-1", "k-2", "k-3"):
            assert stops_once(sent, outcomes, key) == Rejected
        assert not any(outcome.permanent for outcome in outcomes if isinstance(outcome, Rejected))
        left = [one for one, answer in zip(sent, outcomes, strict=True) if not isinstance(answer, Confirmed)]
        while left:
            taken += broker.bodies("full")
            outcomes = publisher.publish_in_order(left)
            left = [one for one, answer in zip(left, outcomes, strict=True) if not isinstance(answer, Confirmed)]
    taken += broker.bodies("full")
    assert len(taken) == 100
    for key in range(4):
        assert [int(body) for body in taken if int(body) % 4 == key] == list(range(key, 100, 4))


def test_an_unroutable_message_stops_its_key_and_no_other(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("shop", "topic")
    broker.channel.queue_bind("events", "shop", "thing.*")
    sent = messages(Topic("shop"), 60, keys=3)
    sent[10] = sent[10]._replace(event_type="nobody.listens")
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish_in_order(sent)
    assert_stopped_at(sent, outcomes, 10)
    assert len(broker.bodies()) == 60 - 17


def test_a_message_that_closes_the_channel_stops_its_key_and_no_other(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("shop", "topic")
    broker.channel.queue_bind("events", "shop", "#")
    sent = messages(Exchange("shop", "order.created"), 200, keys=20)
    sent[43] = sent[43]._replace(routing_key="secret.thing")
    with Management.of(broker.direct).user(may_write_topic=("shop", "^order")) as (user, password):
        url = make_url(broker.url).set(username=user, password=password).render_as_string(hide_password=False)
        with closing(open_publisher(url, deadline=10)) as publisher:
            outcomes = publisher.publish_in_order(sent)
            assert_stopped_at(sent, outcomes, 43)
            rest = [one for one, outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, Withheld)]
            assert publisher.publish_in_order(rest) == [Confirmed()] * 7
    assert in_order(sent[:43] + sent[44:], broker.arrived())


def test_an_exchange_deleted_in_between_stops_its_keys_and_no_other_exchange(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("shop", "topic")
    broker.channel.queue_bind("events", "shop", "#")
    broker.channel.queue_declare("others", durable=True)
    shop, others = messages(Topic("shop"), 600, keys=3), messages(Exchange("", "others"), 600, keys=3)
    mixed = [one for pair in zip(shop, others, strict=True) for one in pair]
    with closing(broker.publisher()) as publisher:
        assert set(publisher.publish_in_order(mixed[:600])) == {Confirmed()}
        broker.channel.exchange_delete("shop")
        outcomes = publisher.publish_in_order(mixed[600:])
        assert set(outcomes[1::2]) == {Confirmed()}
        assert not any(isinstance(outcome, Confirmed) for outcome in outcomes[::2])
        for key in ("k-0", "k-1", "k-2"):
            assert stops_once(mixed[600::2], outcomes[::2], key) in (Rejected, Unknown)
        (head, *_rest) = publisher.publish_in_order(shop[300:])
        assert isinstance(head, Rejected)
        assert head.of_destination
        broker.channel.exchange_declare("shop", "topic")
        broker.channel.queue_bind("events", "shop", "#")
        resend(publisher.publish_in_order, shop[300:])
    assert in_order(shop, broker.arrived())


def test_a_broker_that_wants_no_messages_leaves_all_keys_as_they_are(broker: RabbitBroker) -> None:
    low = b"\x01\0\0" + (4 + 14).to_bytes(4, "big") + b"\0\x0a\0\x3c" + b"\x0dlow on memory" + b"\xce"
    with closing(broker.publisher(deadline=3)) as publisher:
        publisher.publish_in_order([message(QUEUE)])
        broker.proxy.say(low)
        sent = messages(QUEUE, 40, keys=4)
        outcomes = publisher.publish_in_order(sent)
        while any(isinstance(outcome, Confirmed) for outcome in outcomes):  # it had not been told yet
            outcomes = publisher.publish_in_order(sent)
    assert Counter(map(type, outcomes)) == {Unavailable: 4, Withheld: 36}


def test_a_key_with_more_than_the_deadline_allows_goes_on_with_the_next_call(broker: RabbitBroker) -> None:
    """Nobody is charged, and no connection given up, because a long queue takes its time."""
    hot = [one._replace(key="hot") for one in messages(QUEUE, 20_000)]
    sent = [*hot, *messages(QUEUE, 50, keys=50)]
    with closing(broker.publisher(deadline=2)) as publisher:
        first = publisher.publish_in_order(sent)
        count = sum(isinstance(outcome, Confirmed) for outcome in first[:20_000])
        assert 0 < count < 20_000
        assert [type(outcome) for outcome in first[:20_000]] == [Confirmed] * count + [Withheld] * (20_000 - count)
        assert set(first[20_000:]) == {Confirmed()}
        second = publisher.publish_in_order(sent[count : count + 100])
        assert set(second) == {Confirmed()}
    assert in_order(sent[: count + 100] + sent[20_000:], broker.arrived())


# The network --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["cut", "lose_answers", "refuse", "freeze"])
def test_C055_no_key_is_overtaken_or_lost_however_the_network_breaks(broker: RabbitBroker, trouble: str) -> None:
    """C055: what was sent without a confirm is sent again, before all that stands behind it."""
    with closing(broker.publisher(deadline=2)) as publisher, OrderedPump(publisher, QUEUE) as pump:
        for _ in range(3):
            pump.wait_for_trouble(make=getattr(broker.proxy, trouble))  # a cut between two batches troubles nobody
            broker.proxy.heal()
            pump.wait_for_confirms(400)
    assert not any(isinstance(outcome, Rejected) for outcome in pump.odd)
    assert pump.longest < 3
    assert in_order(pump.sent, broker.arrived())


def test_a_lost_connection_leaves_one_message_of_each_key_unknown(broker: RabbitBroker) -> None:
    sent = messages(QUEUE, 400, keys=4)
    with closing(broker.publisher(deadline=2)) as publisher:
        publisher.publish_in_order([message(QUEUE, key="other")])
        broker.proxy.lose_answers()
        started = time.monotonic()
        outcomes = publisher.publish_in_order(sent)
        assert time.monotonic() - started < 3
        assert Counter(map(type, outcomes)) == {Unknown: 4, Withheld: 396}
        assert [type(outcome) for outcome in outcomes[:4]] == [Unknown] * 4
    assert sorted(broker.bodies())[:4] == [b"0", b"1", b"2", b"3"]


# Helpers ------------------------------------------------------------------------------------------------------------


def stops_once(sent: list[Message], outcomes: list[Outcome], key: str) -> type[Outcome]:
    """A key's outcomes are: confirmed ones, the one that stopped it, withheld ones. Returns that one's kind."""
    kinds = [type(outcome) for one, outcome in zip(sent, outcomes, strict=True) if one.key == key]
    at = next(place for place, kind in enumerate(kinds) if kind is not Confirmed)
    assert set(kinds[at + 1 :]) <= {Withheld}, kinds
    return kinds[at]
