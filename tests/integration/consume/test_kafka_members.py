"""Members of a Kafka group come, go, die and are cut off while messages are in their hands."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as Client
from confluent_kafka import Producer, TopicPartition

from pillarbox.consume.kafka import KafkaSource
from pillarbox.errors import BadConsumer, BrokerUnavailable
from pillarbox.ports import Incoming
from tests.kafka_broker import KafkaBroker

QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
PARTITIONS = 6


class Group:
    """A topic with six partitions on a broker of the tests' own, and members of one consumer."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.name = f"g-{uuid4().hex[:8]}"
        self.topic = broker.topic(f"t-{uuid4().hex[:8]}", PARTITIONS)
        self.producer = Producer({"bootstrap.servers": broker.direct, "log_level": 0})

    def send(self, per_partition: int) -> None:
        for number in range(per_partition):
            for partition in range(PARTITIONS):
                self.producer.produce(self.topic, b"%d" % number, partition=partition)
        assert self.producer.flush(20) == 0

    @contextmanager
    def member(self, **options: Any) -> Iterator[KafkaSource]:
        source = KafkaSource.from_url(self.broker.url, self.name, [self.topic], **({"config": QUICK} | options))
        source.open()
        try:
            yield source
        finally:
            source.close()

    def committed(self) -> dict[int, int]:
        client = Client({"bootstrap.servers": self.broker.direct, "group.id": self.name})
        places = client.committed([TopicPartition(self.topic, n) for n in range(PARTITIONS)], timeout=10)
        client.close()
        return {place.partition: max(0, place.offset) for place in places}


@pytest.fixture
def group(lone_kafka: KafkaBroker) -> Group:
    return Group(lone_kafka)


def fetch(members: list[KafkaSource], until: Callable[[list[list[Incoming]]], bool]) -> list[list[Incoming]]:
    """Poll all of them in turn until what each has got is enough."""
    got: list[list[Incoming]] = [[] for _ in members]
    deadline = time.monotonic() + 40
    while not until(got):
        assert time.monotonic() < deadline, [len(one) for one in got]
        for member, mine in zip(members, got, strict=True):
            mine += member.poll(0.05, 100)
    return got


def places(messages: list[Incoming]) -> set[tuple[int, int]]:
    found = set()
    for message in messages:
        partition, offset = message.position.original.split("/")  # type: ignore[attr-defined]
        found.add((int(partition), int(offset)))
    return found


def test_what_was_handled_after_its_partition_was_revoked_is_not_committed_and_comes_again_there(group: Group) -> None:
    """Cooperative: the partitions that stay are never taken away, and what is in hand of them stays valid."""
    group.send(4)
    with group.member() as old:
        (in_hand,) = fetch([old], lambda got: len(got[0]) == 24)
        with group.member() as new:
            moved = fetch([old, new], lambda got: bool(got[1]))[1]
            kept = [one for one in in_hand if old.holds(one)]
            gone = [one for one in in_hand if not old.holds(one)]
            assert 0 < len(kept) < 24
            old.acknowledge(in_hand)  # all of them were handled, some too late
            moved += fetch([old, new], lambda got: places(moved + got[1]) >= places(gone))[1]
            assert places(moved) == places(gone)
            assert not places(moved) & places(kept)
            new.acknowledge(moved)
    assert group.committed() == dict.fromkeys(range(PARTITIONS), 4)


@pytest.mark.long
def test_members_that_come_and_go_lose_nothing_and_what_is_finished_is_not_given_twice(group: Group) -> None:
    """Three members, one after the other, each finishing at once what it gets."""
    seen: list[tuple[int, int]] = []

    def work(members: list[KafkaSource], rounds: int) -> None:
        for _ in range(rounds):
            group.send(1)
            for member in members:
                for one in member.poll(0.1, 50):
                    if member.holds(one):
                        seen.extend(places([one]))
                        member.acknowledge([one])

    with group.member() as first:
        work([first], 10)
        with group.member() as second:
            work([first, second], 15)
            with group.member() as third:
                work([first, second, third], 15)
            work([first, second], 10)
        deadline = time.monotonic() + 30
        while len(set(seen)) < 50 * PARTITIONS and time.monotonic() < deadline:
            work([first], 0)
            for one in first.poll(0.1, 50):
                seen.extend(places([one]))
                first.acknowledge([one])
    assert len(set(seen)) == 50 * PARTITIONS
    assert group.committed() == dict.fromkeys(range(PARTITIONS), 50)
    # What a member finished and could not commit before it lost the partition may come twice, and no more.
    assert len(seen) - len(set(seen)) <= 2 * PARTITIONS


_MEMBER = """
import sys, time
from pillarbox.consume.kafka import KafkaSource
source = KafkaSource.from_url(sys.argv[1], sys.argv[2], [sys.argv[3]],
                              config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 300})
source.open()
got = []
while len(got) < 12:
    got += source.poll(0.1, 100)
source.acknowledge(got[:3])
source.poll(1.0, 0)
print("working", flush=True)
while True:
    source.poll(0.2, 0)
"""


def test_what_a_killed_member_had_in_hand_comes_to_another_one(group: Group) -> None:
    group.send(2)
    command = [sys.executable, "-c", _MEMBER, group.broker.url, group.name, group.topic]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
    finally:
        process.kill()
        process.wait(10)
    assert sum(group.committed().values()) == 3
    with group.member() as heir:
        (got,) = fetch([heir], lambda got: len(got[0]) == 9)
        assert len(places(got)) == 9


def test_a_static_member_that_restarts_moves_no_partition(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pillarbox.consume.kafka")
    group.send(2)
    with group.member(instance_id="a") as first, group.member(instance_id="b") as second:
        got = fetch([first, second], lambda got: all(got) and len(places(got[0]) | places(got[1])) == 12)
        fetch([first, second], lambda _: len(first._partitions.held) + len(second._partitions.held) == PARTITIONS + 1)
        first.poll(0.5, 0)
        mine = set(first._partitions.held)
        first.acknowledge([one for one in got[0] if first.holds(one)])
        first.close()
        caplog.clear()
        with group.member(instance_id="a") as restarted:
            group.send(1)
            fetch([restarted, second], lambda got: set(restarted._partitions.held) == mine and all(got))
            happened = [record.getMessage() for record in caplog.records]
        assert [text for text in happened if "took back" in text] == []
        assert len([text for text in happened if "gave it" in text]) == 1  # the one that restarted


def test_of_two_processes_with_one_instance_id_the_older_one_ends_with_the_reason(group: Group) -> None:
    with group.member(instance_id="a") as older:
        group.send(1)
        fetch([older], lambda got: len(got[0]) == 6)
        with group.member(instance_id="a") as newer, pytest.raises(BrokerUnavailable, match="instance"):
            fetch([newer, older], lambda _: False)


def test_a_broker_that_was_away_is_waited_for_and_what_is_in_hand_is_committed_afterwards(group: Group) -> None:
    with group.member(deadline=2.0) as member:
        group.send(2)
        (got,) = fetch([member], lambda got: len(got[0]) == 12)
        group.broker.proxy.refuse()
        started = time.monotonic()
        member.acknowledge(got)
        while time.monotonic() - started < 7:  # longer than the session: the group forgets the member
            assert member.poll(0.2, 10) == []
        with pytest.raises(BrokerUnavailable):
            member.set_aside(got[0], "no way", 1)
        group.broker.proxy.heal()
        group.send(1)
        deadline = time.monotonic() + 40
        while group.committed() != dict.fromkeys(range(PARTITIONS), 3):
            assert time.monotonic() < deadline, group.committed()
            member.acknowledge(member.poll(0.5, 100))


def test_a_frozen_broker_holds_up_neither_an_acknowledgement_nor_the_end(group: Group) -> None:
    with group.member() as member:
        group.send(1)
        (got,) = fetch([member], lambda got: len(got[0]) == 6)
        group.broker.proxy.freeze()
        started = time.monotonic()
        member.acknowledge(got)
        assert time.monotonic() - started < 1
        member.close()
        assert time.monotonic() - started < 10
        group.broker.proxy.thaw()


def test_fetching_ahead_is_bounded_by_messages_and_bytes(group: Group) -> None:
    for option in ({"prefetch": 0}, {"prefetch_bytes": 0}):
        with pytest.raises(BadConsumer, match="prefetch"):
            KafkaSource.from_url(group.broker.url, "c", ["t"], **option)  # type: ignore[arg-type]
    for _ in range(40):
        group.producer.produce(group.topic, bytes(900_000), partition=0)
    assert group.producer.flush(30) == 0
    with group.member(prefetch_bytes=2 * 1024 * 1024) as member:
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline and member._stash.size < 16 * 1024 * 1024:
            member.poll(0.2, 0)
        for _ in range(5):
            member.poll(0.1, 0)
        assert 15 * 1024 * 1024 <= member._stash.size <= 18 * 1024 * 1024
        (got,) = fetch([member], lambda got: len(got[0]) == 40)
        assert [one.position.position.offset for one in got] == list(range(40))  # type: ignore[attr-defined]
