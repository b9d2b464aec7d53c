"""A member that fetches nothing for a while must fetch again, whatever the group did meanwhile."""

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from pillarbox.consume.kafka import KafkaSource
from pillarbox.testing.conformance.source_world import SourceWorld
from tests.conformance.test_consumer_kafka import Kafka
from tests.services_fixtures import MakeTopic


def test_a_partition_that_left_while_it_was_paused_and_came_back_is_read_again(
    kafka_url: str, kafka_admin: AdminClient, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client keeps a pause beyond the assignment in which it was asked for."""
    monkeypatch.setattr("pillarbox.consume.kafka.stash.MOST", 1)
    under_test = Kafka(kafka_url, kafka_admin, make_topic)
    world = SourceWorld(under_test)

    def member() -> KafkaSource:
        source = KafkaSource.from_url(kafka_url, world.consumer, [world.source])
        source.open()
        return source

    def until(condition: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end

    first = member()
    world.send(*[world.message(n, key=f"k{n}") for n in range(30)])
    until(lambda: (first.poll(0.1, 0), first._stash.full and first._paused)[1])
    everything = set(first._partitions.held)
    second = member()
    until(lambda: (first.poll(0.05, 0), second.poll(0.05, 0), second._partitions.held)[2])
    found = set[str | None]()

    def first_reads() -> None:
        found.update(one.key for one in first.poll(0.05, 100))

    until(lambda: (first_reads(), not first._paused)[1])
    leaving = threading.Thread(target=second.close)
    leaving.start()
    until(lambda: (first_reads(), set(first._partitions.held) == everything)[1])
    leaving.join(10)
    until(lambda: (first_reads(), len(found) == 30)[1])
    first.close()
    under_test.clean_up()
