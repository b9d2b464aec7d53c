"""What must be there before an event is sent to RabbitMQ: looked at by default, declared where the URL asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import make_url

from pillarbox.errors import AccessRefused, BadUrl, BrokerUnavailable
from pillarbox.event.destination import Destination, Exchange, Topic
from pillarbox.ports import Confirmed, Rejected, Unavailable
from pillarbox.publish.rabbitmq import DestinationFacts, inspect
from pillarbox.publish.rabbitmq.url import parse_rabbitmq_url
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message, messages
from tests.management import Management
from tests.rabbitmq_broker import QUEUE, RabbitBroker, rabbit_broker
from tests.servers import PREFIX, read_settings

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[RabbitBroker]:
    with rabbit_broker(rabbitmq_url) as broker:
        yield broker


# Looking ------------------------------------------------------------------------------------------------------------


def test_a_missing_exchange_is_told_before_anything_is_sent_to_it_and_is_not_made(broker: RabbitBroker) -> None:
    with closing(broker.publisher()) as publisher:
        publisher.publish([message(QUEUE)])
        before = broker.proxy.sent
        (outcome,) = publisher.publish([message(Topic("shop"), payload=b"x" * 100_000)])
        assert broker.proxy.sent - before < 1_000
        assert isinstance(outcome, Rejected)
        assert outcome.of_destination
        assert not outcome.permanent
        assert not exists(broker, "shop")
        broker.channel.exchange_declare("shop", "fanout")
        broker.channel.queue_bind("events", "shop")
        assert publisher.publish([message(Topic("shop"))]) == [Confirmed()]


def test_who_may_only_send_may_send(broker: RabbitBroker) -> None:
    """To look needs no permission but that for the virtual host; to declare would need `configure`."""
    broker.channel.exchange_declare("shop", "fanout")
    broker.channel.queue_bind("events", "shop")
    management = Management.of(broker.direct)
    with management.user(may_write_topic=("shop", ".*"), configure="^$", read="^$") as (user, password):
        for options, missing in (("", "no exchange"), ("?declare=quorum", "ACCESS_REFUSED")):
            url = make_url(broker.url).set(username=user, password=password).render_as_string(hide_password=False)
            with closing(open_publisher(url + options, deadline=5)) as publisher:
                there, not_there = publisher.publish([message(Topic("shop")), message(Topic("nowhere"))])
            assert there == Confirmed()
            assert isinstance(not_there, Rejected)
            assert not not_there.permanent
            assert missing in not_there.reason


def test_a_connection_lost_while_the_exchange_is_looked_for_leaves_nothing_unknown(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("shop", "fanout")
    with closing(broker.publisher(deadline=3)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.lose_answers()
        outcomes = publisher.publish(messages(Topic("shop"), 5))
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        broker.proxy.heal()
        broker.channel.queue_bind("events", "shop")
        assert publisher.publish(messages(Topic("shop"), 5)) == [Confirmed()] * 5


# Declaring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_what_is_missing_is_declared_where_the_URL_says_so(broker: RabbitBroker, kind: str) -> None:
    with closing(open_publisher(f"{broker.url}?declare={kind}", deadline=10)) as publisher:
        sent = [*messages(Topic("shop"), 3), *messages(Exchange("", "tasks"), 3), *messages(Topic("other"), 3)]
        assert publisher.publish(sent) == [Confirmed()] * 9
        assert publisher.publish_in_order(messages(Topic("shop"), 4, keys=2)) == [Confirmed()] * 4
    shop, tasks = facts(broker, Topic("shop"), Exchange("", "tasks"))
    assert [(queue.name, queue.type, queue.durable) for queue in shop.queues] == [("shop", kind, True)]
    assert [(queue.name, queue.type, queue.durable) for queue in tasks.queues] == [("tasks", kind, True)]
    assert len(broker.bodies("shop")) == 7


def test_what_is_there_is_left_as_it_is(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("shop", "direct")  # neither durable nor of type topic
    broker.channel.queue_bind("events", "shop", "thing.happened")
    one = message(Exchange("shop", "thing.happened"))
    with closing(open_publisher(f"{broker.url}?declare=quorum", deadline=10)) as publisher:
        assert publisher.publish([one, message(QUEUE)]) == [Confirmed()] * 2
    (shop, events) = facts(broker, Topic("shop"), QUEUE)
    assert [queue.name for queue in shop.queues] == ["events"]
    assert events.queues[0].type == "classic"


def test_a_queue_in_the_way_is_told_and_stops_no_other_exchange(broker: RabbitBroker) -> None:
    broker.channel.queue_declare("shop", durable=True)  # a classic one
    with closing(open_publisher(f"{broker.url}?declare=quorum", deadline=10)) as publisher:
        bad, good = publisher.publish([message(Topic("shop")), message(QUEUE)])
    assert isinstance(bad, Rejected)
    assert bad.of_destination
    assert not bad.permanent
    assert "x-queue-type" in bad.reason
    assert good == Confirmed()


def test_PB_002_an_unknown_type_of_queue_is_refused() -> None:
    with pytest.raises(BadUrl, match="declare"):
        parse_rabbitmq_url("amqp://localhost/?declare=mirrored", connect_timeout=1)
    with pytest.raises(BadUrl, match="management"):
        parse_rabbitmq_url("amqp://localhost/?management=localhost:15672", connect_timeout=1)


# Reporting ----------------------------------------------------------------------------------------------------------


def test_each_queue_behind_a_destination_is_reported_with_its_type(broker: RabbitBroker) -> None:
    channel = broker.channel
    channel.exchange_declare("shop", "topic", durable=True)
    channel.exchange_declare("inner", "fanout", durable=True)
    channel.exchange_bind("inner", "shop", "order.#")
    channel.exchange_bind("shop", "inner")  # a circle
    for name, pattern in (("orders", "order.*"), ("all", "#"), ("bills", "bill.*")):
        channel.queue_declare(name, durable=True, arguments=QUORUM)
        channel.queue_bind(name, "shop", pattern)
    channel.queue_declare("copies", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind("copies", "inner")
    bill, any_key, missing, queue = facts(
        broker, Exchange("shop", "bill.paid"), Topic("shop"), Topic("nowhere"), Exchange("", "no-queue")
    )
    assert {one.name: one.type for one in bill.queues} == {"all": "quorum", "bills": "quorum"}
    assert {one.name for one in any_key.queues} == {"orders", "all", "bills", "copies"}
    assert bill.exists
    assert bill.warnings == ()
    assert (missing.exists, missing.queues, len(missing.warnings)) == (False, (), 1)
    assert (queue.exists, queue.queues, len(queue.warnings)) == (False, (), 1)


@pytest.mark.parametrize(
    ("durable", "arguments", "warning"),
    [
        (False, {}, "not durable"),
        (True, {}, "classic"),
        (True, QUORUM, "one member"),  # this broker has one node
        (True, QUORUM | {"x-max-length": 10}, "drops its oldest"),
        (True, QUORUM | {"x-message-ttl": 1_000}, "after 1000 ms"),
    ],
)
def test_a_queue_that_may_lose_confirmed_events_is_warned_of(
    broker: RabbitBroker, durable: bool, arguments: dict[str, object], warning: str
) -> None:
    broker.channel.queue_declare("doubtful", durable=durable, arguments=arguments)
    (found,) = facts(broker, Exchange("", "doubtful"))
    assert any(warning in one for one in found.queues[0].warnings)


def test_a_full_queue_that_rejects_loses_nothing_and_is_not_warned_of(broker: RabbitBroker) -> None:
    limited = QUORUM | {"x-max-length": 10, "x-overflow": "reject-publish"}
    broker.channel.queue_declare("limited", durable=True, arguments=limited)
    (found,) = facts(broker, Exchange("", "limited"))
    assert not any("oldest" in one for one in found.queues[0].warnings)


def test_an_exchange_that_loses_events_is_warned_of(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("lost", "fanout")
    broker.channel.exchange_declare("shop", "topic", arguments={"alternate-exchange": "lost"}, auto_delete=True)
    (found,) = facts(broker, Topic("shop"))
    for warning in ("not durable", "last binding", "alternate exchange 'lost'", "leads to no queue"):
        assert any(warning in one for one in found.warnings)


def test_PB_005_and_PB_008_an_API_that_is_away_or_refuses_is_told(broker: RabbitBroker) -> None:
    with pytest.raises(BrokerUnavailable, match="rabbitmq_management"):
        inspect(f"{broker.direct}?management=http://127.0.0.1:1", [QUEUE])
    wrong = make_url(broker.direct).set(password="s3cret").render_as_string(hide_password=False)
    with pytest.raises(AccessRefused, match="management API") as caught:
        inspect(with_api(wrong), [QUEUE])
    assert "s3cret" not in str(caught.value)


# Helpers ------------------------------------------------------------------------------------------------------------


def with_api(url: str) -> str:
    """The URL with the address of its broker's management API."""
    address = read_settings().get(f"{PREFIX}RABBITMQ_MANAGEMENT")
    if address is None:
        pytest.skip(f"{PREFIX}RABBITMQ_MANAGEMENT is not set")
    place = make_url(address)
    return f"{url}?management={place.drivername}://{place.host}:{place.port}"


def facts(broker: RabbitBroker, *destinations: Destination) -> list[DestinationFacts]:
    return inspect(with_api(broker.direct), destinations)


def exists(broker: RabbitBroker, exchange: str) -> bool:
    return facts(broker, Topic(exchange))[0].exists
