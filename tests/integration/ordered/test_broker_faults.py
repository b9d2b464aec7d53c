"""Brokers that answer slowly, never, or after the lease, and outages with a backlog: nothing lost, nobody charged."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from pillarbox.lab.proxy import FaultProxy
from pillarbox.publish.registry import make_publisher
from pillarbox.relay import OrderedRelay
from pillarbox.store import write
from pillarbox.testing.conformance.store_world import event
from services.process import ServiceError
from tests.crash.ordered_lab import Lab, wait_until
from tests.crash.ordered_order import in_topic
from tests.integration.ordered.working import relay, wrong
from tests.kafka_broker import kafka_broker
from tests.rabbitmq_broker import rabbit_broker
from tests.servers import unique

LEASE = 3.0


class Place(NamedTuple):
    """A broker behind a proxy: its URL, where events go, and how to read all that arrived, by event id and key."""

    proxy: FaultProxy
    url: str
    destination: str
    routing_key: str | None
    arrived: Callable[[], list[tuple[str, str | None]]]


@pytest.fixture(params=["rabbitmq", pytest.param("kafka", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with _rabbitmq(request) if request.param == "rabbitmq" else _kafka() as found:
        yield found


@contextmanager
def _rabbitmq(request: pytest.FixtureRequest) -> Iterator[Place]:
    with rabbit_broker(request.getfixturevalue("rabbitmq_url")) as broker:

        def arrived() -> list[tuple[str, str | None]]:
            return [(one.headers["id"], one.key) for one in broker.arrived()]

        yield Place(broker.proxy, broker.url, "", "events", arrived)


@contextmanager
def _kafka() -> Iterator[Place]:
    try:
        with kafka_broker() as broker:
            topic = broker.topic(unique("t"), 3)
            yield Place(broker.proxy, broker.url, topic, None, lambda: _in_topic(broker.direct, topic))
    except (FileNotFoundError, ServiceError) as error:  # no Java, or no jars and no way to get them
        if os.environ.get("PILLARBOX_REQUIRE_SERVICES") == "1":
            raise
        pytest.skip(f"no Kafka broker can be started here: {error}")


def _in_topic(bootstrap: str, topic: str) -> list[tuple[str, str | None]]:
    return [(one.event_id, one.key) for one in in_topic(bootstrap, topic)]


def backlog(lab: Lab, place: Place, count: int) -> None:
    """So many events of 200 keys, committed."""
    for start in range(0, count, 1_000):
        rows = [
            write.row_of(event(key=f"k{n % 200}", destination=place.destination, routing_key=place.routing_key), ())
            for n in range(start, min(count, start + 1_000))
        ]
        with lab.world.engine.begin() as connection:
            write.insert(connection, rows)


def judged(lab: Lab, place: Place) -> list[str]:
    """What is wrong with what arrived."""
    return wrong(lab, [event(event_id=event_id, key=key) for event_id, key in place.arrived()])


def charged(lab: Lab) -> int:
    """The most attempts that anything waiting has, and how much is dead."""
    return int(
        lab.one("SELECT COALESCE(MAX(attempts), 0) FROM outbox_ready")
        + lab.one("SELECT COALESCE(MAX(attempts), 0) FROM outbox_parked")
        + lab.one("SELECT COUNT(*) FROM outbox_parked WHERE state = 'DEAD'")
    )


@contextmanager
def at_work(lab: Lab, place: Place) -> Iterator[OrderedRelay]:
    with relay(lab.url, make_publisher(place.url, deadline=LEASE / 3), lease=LEASE, batch=500) as one:
        yield one


@pytest.mark.timeout(180)
@pytest.mark.parametrize("database_name", ["postgres", pytest.param("mysql", marks=pytest.mark.long)], indirect=True)
def test_a_broker_that_answers_after_the_lease_or_never_loses_nothing_and_keeps_the_order(
    lab: Lab, place: Place
) -> None:
    """Frozen for longer than a lease; deaf, so that what it took is not known; and gone."""
    with at_work(lab, place) as one:
        for fault in (place.proxy.freeze, place.proxy.lose_answers, place.proxy.refuse):
            backlog(lab, place, 500)
            sent = lab.sent()
            wait_until(lambda sent=sent: lab.sent() > sent, 30, "the beginning")
            fault()
            backlog(lab, place, 100)
            time.sleep(LEASE + 0.5)  # not for a result: so long the broker is away
            place.proxy.heal()
            wait_until(lambda: lab.waiting() == 0, 40, f"the end of it, {one.stats}")
    assert judged(lab, place) == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("count", "seconds"), [(6_000, 4.0), pytest.param(20_000, 10.0, marks=pytest.mark.long)], ids=["small", "large"]
)
@pytest.mark.parametrize("database_name", ["postgres", pytest.param("mysql", marks=pytest.mark.long)], indirect=True)
def test_after_an_outage_the_backlog_goes_out_at_the_full_rate_and_nobody_is_charged(
    lab: Lab, place: Place, count: int, seconds: float
) -> None:
    """C-outage: no DEAD, attempts 0, and within 5 s of the broker's return as fast as before."""
    backlog(lab, place, count // 2)
    with at_work(lab, place):
        before = _rate(lab, count // 4)
        place.proxy.refuse()
        backlog(lab, place, count - lab.waiting())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert charged(lab) == 0
            time.sleep(0.2)
        waiting = lab.waiting()
        place.proxy.heal()
        back = wait_until(lambda: lab.waiting() < waiting - 1_000, 30, "the return")
        after = _rate(lab, count // 2)
        wait_until(lambda: lab.waiting() == 0, 60, "the end")
    print(f"{before:.0f} events/s before, {after:.0f} after; 1,000 were sent {back:.1f} s after the broker's return")
    assert back < 5.0
    assert after > before / 3  # the two are seconds apart on a machine that others use, too
    assert charged(lab) == 0
    assert judged(lab, place) == []


def _rate(lab: Lab, count: int) -> float:
    sent = lab.sent()
    return count / wait_until(lambda: lab.sent() > sent + count, 60, "sending")
