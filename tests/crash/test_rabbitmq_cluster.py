"""A quorum queue of three nodes whose leader is killed, under a publisher and a consumer at work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise

import pika
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received
from pillarbox.event.destination import Exchange
from pillarbox.publish.registry import open_publisher
from tests.conformance.shared_database import shared_database
from tests.ordered_pump import OrderedPump
from tests.rabbitmq_cluster import Cluster, rabbitmq_cluster

pytestmark = [pytest.mark.services, pytest.mark.long, pytest.mark.timeout(400)]

QUEUE = "events"


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        with engine.begin() as connection:
            connection.execute(
                text("CREATE TABLE seen (seq serial, event_id varchar(100), event_key varchar(50), n integer)")
            )
        yield engine


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with rabbitmq_cluster() as cluster:
        yield cluster


def declare(cluster: Cluster, *, single_active: bool) -> None:
    url = f"amqp://guest:guest@{cluster.nodes[0].host}/"
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        arguments: dict[str, object] = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}
        if single_active:
            arguments["x-single-active-consumer"] = True
        connection.channel().queue_declare(QUEUE, durable=True, arguments=arguments)
    until(lambda: cluster.online(QUEUE) == 3)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("single_active", [True, False], ids=["single-active", "competing"])
def test_the_leaders_death_loses_nothing_and_is_over_in_seconds(
    cluster: Cluster, engine: Engine, single_active: bool
) -> None:
    """M11: each leader in turn, so that publisher and consumer lose their own node as well as the queue's.

    Order holds where one consumer at a time is active. Else what was out with the lost connection comes back behind
    what its successor was given first: a dead node's consumers are only suspected to be gone.
    """
    declare(cluster, single_active=single_active)
    consumer = Consumer("stock", database=engine, broker=cluster.url, sources=[QUEUE], workers=2)

    @consumer.on("thing.happened")
    def handle(event: Received[bytes], session: Session) -> None:
        statement = text("INSERT INTO seen (event_id, event_key, n) VALUES (:id, :key, :n)")
        session.execute(statement, {"id": event.id, "key": event.key, "n": int(event.payload)})

    gaps: list[float] = []
    with (
        consumer.start(60) as running,
        closing(open_publisher(cluster.url, deadline=10)) as publisher,
    ):
        with OrderedPump(publisher, Exchange("", QUEUE), size=100, keys=8) as pump:
            for survivor in (cluster.nodes[2], cluster.nodes[0]):
                leader = cluster.leader_of(QUEUE, asked=survivor)
                if leader is survivor:
                    survivor = cluster.others(leader)[0]
                applied = consumer.stats.applied
                killed = time.monotonic()
                leader.process.kill()
                pump.wait_for_confirms(100)
                gaps.append(time.monotonic() - killed)
                running.wait_until(lambda before=applied: consumer.stats.applied > before + 100, 60)
                assert cluster.leader_of(QUEUE, asked=survivor) is not leader
                leader.start()
                pump.wait_for_confirms(300)
                until(lambda: cluster.online(QUEUE) == 3)
        running.wait_until(lambda: consumer.stats.applied >= len(pump.sent), 120)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT event_id, event_key, n FROM seen ORDER BY seq")).all()
    assert sorted(row[0] for row in rows) == sorted(one.event_id for one in pump.sent), "lost or applied twice"
    by_key: dict[str, list[int]] = defaultdict(list)
    for _, key, number in rows:
        by_key[key].append(number)
    late = sum(later < earlier for numbers in by_key.values() for earlier, later in pairwise(numbers))
    assert late == 0 or not single_active
    assert consumer.stats.dead == 0
    print(
        f"{len(pump.sent)} events, {consumer.stats.duplicates} duplicates, "
        f"outcomes {dict(pump.outcomes)}, 100 confirms after the kill in {[round(gap, 2) for gap in gaps]} s, "
        f"longest batch {pump.longest:.2f} s, consumer lost its broker {consumer.stats.broker_away} times, "
        f"{late} steps back in {len(by_key)} keys"
    )
