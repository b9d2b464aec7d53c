"""A record of 10 MiB goes the whole way of a message: delivered, put back, given up, replayed."""

from collections.abc import Iterator
from hashlib import sha256

import pytest
from confluent_kafka.admin import AdminClient

from pillarbox.consume.deadletters import Choice
from pillarbox.testing.conformance.consumer_deadletters import look, send_again
from pillarbox.testing.conformance.source_world import SourceWorld, fetch
from tests.conformance.test_consumer_kafka import Kafka
from tests.conformance.test_consumer_rabbitmq import Rabbit
from tests.services_fixtures import MakeTopic

LARGE = bytes(range(256)) * 40 * 1024  # 10 MiB


@pytest.fixture(params=["kafka", "rabbitmq"])
def source_world(request: pytest.FixtureRequest) -> Iterator[SourceWorld]:
    if request.param == "rabbitmq":
        rabbit = Rabbit(request.getfixturevalue("rabbitmq_url"))
        yield SourceWorld(rabbit)
        rabbit.connection.close()
        return
    make: MakeTopic = request.getfixturevalue("make_topic")
    admin: AdminClient = request.getfixturevalue("kafka_admin")

    def make_topic(partitions: int = 1, **config: str) -> str:
        return make(partitions, max_message_bytes="12582912", **config)

    kafka = Kafka(request.getfixturevalue("kafka_url"), admin, make_topic)
    yield SourceWorld(kafka)
    kafka.clean_up()


def test_ten_mebibytes_are_delivered_put_back_given_up_and_replayed_byte_for_byte(source_world: SourceWorld) -> None:
    (event_id,) = source_world.send(source_world.message(payload=LARGE, content_type="application/octet-stream"))
    small = source_world.send(*[source_world.message(n) for n in range(3)])
    with source_world.member() as member:
        got = {one.headers["id"]: one for one in fetch(member, 4)}
        assert set(got) == {event_id, *small}
        member.put_back(got[event_id], 0.2, "once more", 1)
        member.acknowledge(list(got.values()))
        (again,) = fetch(member, 1)
        assert (sha256(again.body).digest(), again.attempts) == (sha256(LARGE).digest(), 1)
        member.set_aside(again, "too much", 2)
        member.acknowledge([again])
        (letter,) = look(source_world)
        assert letter.size == len(LARGE)
        assert send_again(source_world, Choice()).replayed == 1
        (last,) = fetch(member, 1)
        assert sha256(last.body).digest() == sha256(LARGE).digest()
        member.acknowledge([last])
