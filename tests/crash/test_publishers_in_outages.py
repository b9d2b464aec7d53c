"""Brokers that die, freeze or want no messages, under each publisher: honest outcomes, nothing lost, back by itself.

These disturb the shared servers, so they run alone (marker ``fault``).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pika
import pytest
from confluent_kafka.admin import AdminClient

from pillarbox.event.destination import Destination, Exchange, Topic
from pillarbox.ports import Confirmed, Outcome, Publisher, Rejected, Unknown
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message, messages
from services.faults import killed, stopped
from services.process import ServiceError
from tests.rabbitmq_broker import queue_that_survives
from tests.rabbitmqctl import rabbitmqctl

QUEUE = Exchange("", "events")
KAFKA = ("kafka1", "kafka2", "kafka3")


class Pump:
    """Publishes a batch after the other on its own thread, until it is stopped."""

    def __init__(self, publisher: Publisher, there: Destination, size: int = 20) -> None:
        self.outcomes: list[Outcome] = []
        self.longest = 0.0
        self._publisher, self._there, self._size = publisher, there, size
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Pump":
        self._thread.start()
        self.wait_for_confirms(3 * self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            started = time.monotonic()
            self.outcomes += self._publisher.publish(messages(self._there, self._size))
            self.longest = max(self.longest, time.monotonic() - started)

    def wait_for_confirms(self, more: int, seconds: float = 60) -> None:
        """Wait until so many more are confirmed."""
        before = self.confirmed
        wait_until(lambda: self.confirmed >= before + more, seconds)

    def wait_for_trouble(self, seconds: float = 60) -> None:
        """Wait until something that is sent now is not confirmed."""
        seen = len(self.outcomes)
        wait_until(lambda: not all(isinstance(one, Confirmed) for one in self.outcomes[seen:]), seconds)

    @property
    def confirmed(self) -> int:
        return sum(isinstance(outcome, Confirmed) for outcome in self.outcomes)

    def trouble(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not isinstance(outcome, Confirmed)]


def honest(outcomes: list[Outcome]) -> bool:
    """An outage: nobody is charged, and nobody is dead."""
    return not any(
        isinstance(one, Rejected) or (isinstance(one, Unknown) and one.destination_healthy) for one in outcomes
    )


@contextmanager
def disturbing(fault: Callable[..., "Iterator[None]"], *parts: str) -> Iterator[None]:
    try:
        with fault(*parts):
            yield
    except ServiceError as error:
        pytest.skip(f"needs the servers of `python -m services up`: {error}")


# Kafka --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(make_topic: Callable[..., str], kafka_admin: AdminClient) -> Iterator[Destination]:
    name = make_topic(6)
    yield Topic(name)
    wait_until(lambda: in_sync(kafka_admin, name) == 3, 60)  # the next test begins with all replicas


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_one_killed_kafka_broker_stops_nothing(kafka_url: str, topic: Destination) -> None:
    with closing(open_publisher(kafka_url)) as publisher, Pump(publisher, topic) as pump:
        with disturbing(killed, KAFKA[0]):
            pump.wait_for_confirms(200)
        pump.wait_for_confirms(200)
    assert pump.trouble() == []
    assert pump.longest < 15


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_one_frozen_kafka_broker_stops_nothing(kafka_url: str, topic: Destination) -> None:
    with closing(open_publisher(kafka_url)) as publisher, Pump(publisher, topic) as pump:
        with disturbing(stopped, KAFKA[1]):
            pump.wait_for_confirms(200)
        pump.wait_for_confirms(200)
    assert not any(isinstance(outcome, Rejected) for outcome in pump.trouble())
    assert pump.longest < 20


@pytest.mark.fault
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", [killed, stopped], ids=["killed", "frozen"])
def test_two_lost_kafka_brokers_are_an_outage_that_ends_by_itself(
    kafka_url: str, topic: Destination, fault: Callable[..., "Iterator[None]"]
) -> None:
    with closing(open_publisher(kafka_url)) as publisher, Pump(publisher, topic) as pump:
        with disturbing(fault, KAFKA[1], KAFKA[2]):
            pump.wait_for_trouble()
        pump.wait_for_confirms(100, seconds=90)
    assert honest(pump.trouble())
    assert pump.longest < 20


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_all_kafka_brokers_lost_is_told_and_ends_by_itself(kafka_url: str, topic: Destination) -> None:
    with closing(open_publisher(kafka_url)) as publisher, Pump(publisher, topic) as pump:
        with disturbing(killed, *KAFKA):
            pump.wait_for_trouble()
        pump.wait_for_confirms(100, seconds=90)
    assert honest(pump.trouble())
    assert pump.longest < 20


# RabbitMQ -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(rabbitmq_url: str) -> Destination:
    # Classic: a quorum queue of a single node that is killed seconds after its making is not always led again.
    queue_that_survives(rabbitmq_url)
    return QUEUE


@pytest.mark.fault
def test_a_memory_alarm_charges_nobody_and_ends_by_itself(rabbitmq_url: str, queue: Destination) -> None:
    with closing(open_publisher(rabbitmq_url, deadline=4)) as publisher:
        publisher.publish([message(queue)])
        rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            first = publisher.publish(
                messages(queue, 10)
            )  # the broker says it is blocked only when it is sent something
            second = publisher.publish(messages(queue, 10))
        finally:
            rabbitmqctl("set_vm_memory_high_watermark", "0.4")
        assert honest(first)
        assert Counter(type(outcome).__name__ for outcome in second) == {"Unavailable": 10}
        assert "low on memory" in second[0].reason
        wait_until(lambda: publisher.publish([message(queue)]) == [Confirmed()], 20)


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_a_killed_rabbitmq_node_is_an_outage_that_ends_by_itself(rabbitmq_url: str, queue: Destination) -> None:
    with closing(open_publisher(rabbitmq_url, deadline=10)) as publisher, Pump(publisher, queue) as pump:
        with disturbing(killed, "rabbitmq"):
            pump.wait_for_trouble()
        pump.wait_for_confirms(100)
    assert honest(pump.trouble())


@pytest.mark.fault
@pytest.mark.timeout(120)
def test_a_frozen_rabbitmq_node_costs_the_deadline_and_ends_by_itself(rabbitmq_url: str, queue: Destination) -> None:
    with closing(open_publisher(rabbitmq_url, deadline=4)) as publisher, Pump(publisher, queue) as pump:
        with disturbing(stopped, "rabbitmq"):
            pump.wait_for_trouble()
        pump.wait_for_confirms(100)
    assert honest(pump.trouble())
    assert pump.longest < 6


def test_a_queue_that_never_answers_is_charged_and_its_neighbours_are_not(rabbitmq_url: str) -> None:
    """No disturbance of others: only this test's own queue is suspended."""
    vhost = pika.URLParameters(rabbitmq_url).virtual_host
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        for name in ("good", "stuck"):
            connection.channel().queue_declare(name, durable=True)
    suspend = (
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"stuck">>)), '
        "sys:suspend(amqqueue:get_pid(Q))."
    )
    with closing(open_publisher(rabbitmq_url, deadline=4)) as publisher:
        assert publisher.publish([message(Exchange("", "stuck"))]) == [Confirmed()]
        rabbitmqctl("eval", suspend)
        good, stuck = messages(Exchange("", "good"), 5), messages(Exchange("", "stuck"), 5)
        try:
            outcomes = publisher.publish([one for pair in zip(good, stuck, strict=True) for one in pair])
        finally:
            rabbitmqctl("eval", suspend.replace("sys:suspend", "sys:resume"))
        assert outcomes[::2] == [Confirmed()] * 5
        for outcome in outcomes[1::2]:
            assert isinstance(outcome, Unknown)
            assert outcome.destination_healthy
        assert publisher.publish([message(Exchange("", "stuck"))]) == [Confirmed()]


# Helpers ------------------------------------------------------------------------------------------------------------


def in_sync(admin: AdminClient, topic: str) -> int:
    return min(len(one.isrs) for one in admin.list_topics(topic, timeout=10).topics[topic].partitions.values())


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
