"""RabbitMQ behind a network that breaks, and a broker that refuses: each outcome says what is really known."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from sqlalchemy import make_url

from pillarbox.errors import AccessRefused, BrokerUnavailable
from pillarbox.event.destination import Exchange, Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed, Outcome, Publisher, Rejected, Unavailable, Unknown
from pillarbox.publish.rabbitmq import RabbitPublisher
from pillarbox.publish.registry import make_publisher, open_publisher
from pillarbox.testing.conformance.publisher_world import message, messages
from tests.management import Management
from tests.rabbitmq_broker import QUEUE, RabbitBroker, rabbit_broker


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[RabbitBroker]:
    with rabbit_broker(rabbitmq_url) as broker:
        yield broker


@pytest.fixture
def management(rabbitmq_url: str) -> Management:
    return Management.of(rabbitmq_url)


# The network --------------------------------------------------------------------------------------------------------


def test_C055_a_link_cut_between_write_and_confirm_leaves_the_outcome_unknown(broker: RabbitBroker) -> None:
    """C055: without its confirm nothing counts as delivered, although the broker has it."""
    with closing(broker.publisher()) as publisher:
        assert publisher.publish([message(QUEUE, payload=b"before")]) == [Confirmed()]
        broker.proxy.lose_answers()
        before = broker.proxy.sent
        answers = in_background(publisher, messages(QUEUE, 20))
        wait_for(lambda: broker.proxy.sent > before + 2_000)
        wait_for(lambda: broker.channel.queue_declare("events", passive=True).method.message_count == 21)
        broker.proxy.cut()
        for outcome in answers():
            assert isinstance(outcome, Unknown)
            assert not outcome.destination_healthy
    assert len(broker.bodies()) == 21


def test_C058_publishing_resumes_by_itself_after_a_lost_connection(
    broker: RabbitBroker, management: Management
) -> None:
    """C058: closed by the broker, then reset by the network: each time the next publish reconnects."""
    with closing(broker.publisher()) as publisher:
        publisher.publish([message(QUEUE)])
        assert management.close_connections(but=broker.connection) >= 1
        wait_for(lambda: publisher.publish([message(QUEUE)]) == [Confirmed()])
        broker.proxy.cut()
        wait_for(lambda: publisher.publish([message(QUEUE)]) == [Confirmed()])


def test_a_broker_that_is_away_is_told_quickly_and_found_again(broker: RabbitBroker) -> None:
    with closing(broker.publisher(deadline=10)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.refuse()
        publisher.publish([message(QUEUE)])  # this one may still have met the old connection
        started = time.monotonic()
        (outcome,) = publisher.publish([message(QUEUE)])
        assert isinstance(outcome, Unavailable)
        assert time.monotonic() - started < 5
        broker.proxy.heal()
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


def test_a_frozen_node_costs_the_deadline_and_no_more(broker: RabbitBroker) -> None:
    with closing(broker.publisher(deadline=2)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.freeze()
        started = time.monotonic()
        outcomes = publisher.publish(messages(QUEUE, 10))
        assert 1.5 < time.monotonic() - started < 3
        assert {type(outcome) for outcome in outcomes} == {Unknown}
        assert not any(outcome.destination_healthy for outcome in outcomes if isinstance(outcome, Unknown))
        started = time.monotonic()
        (outcome,) = publisher.publish([message(QUEUE)])  # now it cannot even connect
        assert isinstance(outcome, Unavailable)
        assert time.monotonic() - started < 3
        broker.proxy.heal()
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


def test_a_confirm_that_comes_too_late_is_never_given_to_another_message(broker: RabbitBroker) -> None:
    with closing(broker.publisher(deadline=2)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.freeze()
        publisher.publish(messages(QUEUE, 5))
        broker.proxy.thaw()
        # Were the late confirms of tags 2 to 6 still listened to, these would count as confirmed.
        missing = Exchange(f"missing-{uuid.uuid4().hex[:8]}", "x")
        outcomes = publisher.publish(messages(missing, 5))
        assert {type(outcome) for outcome in outcomes} == {Rejected}


def test_an_idle_connection_stays_alive_by_heartbeats(broker: RabbitBroker) -> None:
    with closing(open_publisher(f"{broker.url}?heartbeat=1", deadline=5)) as publisher:
        publisher.publish([message(QUEUE)])
        sent = broker.proxy.sent
        wait_for(lambda: broker.proxy.sent > sent + 2 * 8)  # a heartbeat frame has 8 bytes
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


def test_closing_does_not_wait_for_a_frozen_node(broker: RabbitBroker) -> None:
    publisher = broker.publisher()
    broker.proxy.freeze()
    started = time.monotonic()
    publisher.close()
    assert time.monotonic() - started < 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_connection_thread_that_dies_is_replaced(broker: RabbitBroker) -> None:
    publisher = make_publisher(broker.url, deadline=5)
    assert isinstance(publisher, RabbitPublisher)
    with closing(publisher):
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]
        session = publisher._session
        assert session is not None
        session._ioloop.add_callback_threadsafe(lambda: 1 / 0)
        wait_for(lambda: not session.alive)
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


# A broker that wants no messages ------------------------------------------------------------------------------------

# Connection.Blocked("low on memory") and Connection.Unblocked, as frames of channel 0 (AMQP 0-9-1, RabbitMQ extension).
BLOCKED = b"\x01\0\0" + (4 + 14).to_bytes(4, "big") + b"\0\x0a\0\x3c" + b"\x0dlow on memory" + b"\xce"
UNBLOCKED = b"\x01\0\0" + (4).to_bytes(4, "big") + b"\0\x0a\0\x3d" + b"\xce"


def test_a_blocked_connection_gets_nothing_and_goes_on_when_unblocked(
    broker: RabbitBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(broker.publisher(deadline=4)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.say(BLOCKED)
        wait_for(lambda: "accepts no messages" in caplog.text)
        outcomes = publisher.publish(messages(QUEUE, 10))
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        assert "low on memory" in outcomes[0].reason
        broker.proxy.say(UNBLOCKED)
        assert publisher.publish(messages(QUEUE, 10)) == [Confirmed()] * 10
    assert len(broker.bodies()) == 11


def test_a_short_blockade_is_waited_for(broker: RabbitBroker) -> None:
    with closing(broker.publisher(deadline=8)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.say(BLOCKED)
        answers = in_background(publisher, messages(QUEUE, 10))
        broker.proxy.say(UNBLOCKED)
        assert answers() == [Confirmed()] * 10


def test_what_was_sent_before_the_blockade_is_unknown_and_the_rest_unavailable(broker: RabbitBroker) -> None:
    batch = messages(QUEUE, 1_500)  # more than the window of one channel
    with closing(broker.publisher(deadline=4)) as publisher:
        publisher.publish([message(QUEUE)])
        broker.proxy.lose_answers()
        answers = in_background(publisher, batch)
        wait_for(lambda: broker.channel.queue_declare("events", passive=True).method.message_count > 500)
        broker.proxy.say(BLOCKED)
        outcomes = answers()
        assert {type(outcome) for outcome in outcomes} == {Unknown, Unavailable}
        assert not any(outcome.destination_healthy for outcome in outcomes if isinstance(outcome, Unknown))
        broker.proxy.heal()
        wait_for(lambda: publisher.publish([message(QUEUE)]) == [Confirmed()])


# The broker's refusals ----------------------------------------------------------------------------------------------


def test_C056_an_unroutable_message_is_dead_at_once_and_its_neighbours_are_not(broker: RabbitBroker) -> None:
    """C056: an exchange that leads nowhere acknowledges and drops; mandatory and the return before the ack tell."""
    broker.channel.exchange_declare("shop", "topic")
    broker.channel.queue_bind("events", "shop", "order.*")
    sent = messages(Topic("shop"), 6)
    sent = [one._replace(event_type="order.created" if at % 2 else "nobody.listens") for at, one in enumerate(sent)]
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish(sent)
    for at, outcome in enumerate(outcomes):
        if at % 2:
            assert outcome == Confirmed()
        else:
            assert isinstance(outcome, Rejected)
            assert outcome.permanent
            assert "unroutable" in outcome.reason
            assert "'nobody.listens'" in outcome.reason
    assert broker.bodies() == [b"1", b"3", b"5"]


def test_C056_a_queue_deleted_while_publishing_makes_the_rest_unroutable(broker: RabbitBroker) -> None:
    """C056: nothing that went to the deleted queue is said to be confirmed after the deletion."""
    with closing(broker.publisher()) as publisher:
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]
        broker.channel.queue_delete("events")
        (outcome,) = publisher.publish([message(QUEUE)])
    assert isinstance(outcome, Rejected)
    assert outcome.permanent


def test_the_same_event_returned_for_one_routing_key_is_confirmed_for_the_other(broker: RabbitBroker) -> None:
    broker.channel.exchange_declare("shop", "direct")
    broker.channel.queue_bind("events", "shop", "there")
    one = message(Exchange("shop", "nowhere"))
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish([one, one._replace(routing_key="there")])
    assert isinstance(outcomes[0], Rejected)
    assert outcomes[1] == Confirmed()


def test_a_full_queue_is_retryable(broker: RabbitBroker) -> None:
    limited = {"x-max-length": 1, "x-overflow": "reject-publish"}
    broker.channel.queue_declare("full", durable=True, arguments=limited)
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish(messages(Exchange("", "full"), 20))
    assert outcomes[0] == Confirmed()
    refused = [outcome for outcome in outcomes if isinstance(outcome, Rejected)]
    assert len(refused) == 19
    assert not any(outcome.permanent for outcome in refused)


def test_after_a_refusal_the_next_attempt_goes_by_a_new_channel_and_else_by_the_same(broker: RabbitBroker) -> None:
    """A channel that took a dead node for a quorum queue's leader is refused until that node is back."""
    limited = {"x-max-length": 1, "x-overflow": "reject-publish"}
    broker.channel.queue_declare("full", durable=True, arguments=limited)
    with closing(RabbitPublisher.from_url(broker.url, deadline=5)) as publisher:

        def publish(count: int) -> object:
            publisher.publish(messages(Exchange("", "full"), count))
            assert publisher._session is not None
            return publisher._session._lanes[""]._channel

        refused = publish(20)
        broker.bodies("full")
        fresh = publish(1)
        broker.bodies("full")
        assert fresh is not refused
        assert publish(1) is fresh
        assert len(broker.bodies("full")) == 1


def test_a_missing_exchange_spoils_no_neighbour_in_a_large_batch(broker: RabbitBroker) -> None:
    good, bad = messages(QUEUE, 900), messages(Exchange("missing", "x"), 900)
    mixed = [one for pair in zip(good, bad, strict=True) for one in pair]
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish(mixed)
    assert outcomes[::2] == [Confirmed()] * 900
    assert {(type(outcome), getattr(outcome, "permanent", None)) for outcome in outcomes[1::2]} == {(Rejected, False)}
    assert len(broker.bodies()) == 900


def test_a_message_that_may_not_be_written_is_told_from_its_neighbours(
    broker: RabbitBroker, management: Management
) -> None:
    broker.channel.exchange_declare("shop", "topic")
    broker.channel.queue_bind("events", "shop", "#")
    sent = messages(Exchange("shop", "order.created"), 10)
    sent[4] = sent[4]._replace(routing_key="secret.thing")
    with management.user(may_write_topic=("shop", "^order")) as (user, password):
        url = make_url(broker.url).set(username=user, password=password).render_as_string(hide_password=False)
        with closing(open_publisher(url, deadline=5)) as publisher:
            outcomes = publisher.publish(sent)
    assert isinstance(outcomes[4], Rejected)
    assert outcomes[4].permanent
    assert "ACCESS_REFUSED" in outcomes[4].reason
    assert [outcome for at, outcome in enumerate(outcomes) if at != 4] == [Confirmed()] * 9


def test_a_name_too_long_for_AMQP_is_refused_alone(broker: RabbitBroker) -> None:
    sent = messages(QUEUE, 3)
    sent[1] = sent[1]._replace(headers='{"%s":"x"}' % ("☃" * 200))
    with closing(broker.publisher()) as publisher:
        outcomes = publisher.publish(sent)
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].permanent
    assert (outcomes[0], outcomes[2]) == (Confirmed(), Confirmed())


# At start -----------------------------------------------------------------------------------------------------------


def test_PB_005_a_broker_that_is_away_at_start_is_named_without_the_password(broker: RabbitBroker) -> None:
    broker.proxy.refuse()
    with pytest.raises(BrokerUnavailable) as caught:
        broker.publisher(deadline=2)
    assert f"127.0.0.1:{broker.proxy.port}" in str(caught.value)
    assert "guest" not in str(caught.value)
    with pytest.raises(BrokerUnavailable):
        open_publisher("amqp://nobody:s3cret@127.0.0.1:1/", deadline=2)


def test_PB_005_a_frozen_broker_at_start_costs_the_deadline_at_most(broker: RabbitBroker) -> None:
    broker.proxy.freeze()
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        broker.publisher(deadline=2)
    assert time.monotonic() - started < 3.5


def test_PB_008_a_wrong_password_and_a_foreign_virtual_host_are_refused(broker: RabbitBroker) -> None:
    url = make_url(broker.direct)
    for wrong in (url.set(password="s3cret"), url.set(database="no-such-vhost")):
        with pytest.raises(AccessRefused) as caught:
            open_publisher(wrong.render_as_string(hide_password=False), deadline=5)
        assert "s3cret" not in str(caught.value)


def test_the_other_node_of_a_list_is_tried(broker: RabbitBroker) -> None:
    url = broker.url.replace("@", "@127.0.0.1:1,")
    with closing(open_publisher(url, deadline=10)) as publisher:
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


def test_a_publisher_need_not_be_opened_first(broker: RabbitBroker) -> None:
    with closing(make_publisher(broker.url, deadline=5)) as publisher:
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


# Helpers ------------------------------------------------------------------------------------------------------------


def in_background(publisher: Publisher, batch: list[Message]) -> Callable[[], list[Outcome]]:
    """Publish on another thread; the result waits for it."""
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.extend(publisher.publish(batch)))
    thread.start()

    def result() -> list[Outcome]:
        thread.join(30)
        return found

    return result


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
