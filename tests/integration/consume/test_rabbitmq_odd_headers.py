"""Headers that AMQP allows and text does not: one such message must not cut the connection, again and again."""

from typing import Any

import pytest
from pika import BasicProperties

from pillarbox.consume.rabbitmq import RabbitSource
from pillarbox.testing.conformance.source_world import SourceWorld, fetch
from tests.conformance.test_consumer_rabbitmq import Rabbit

NO_UTF8 = b"\xff\xfe"


@pytest.mark.parametrize(
    "odd", [{"t": {NO_UTF8: 1}}, {"t": [{NO_UTF8: {NO_UTF8: "x"}}]}, {NO_UTF8: "x"}, {"x-death": ["nobody's"]}]
)
@pytest.mark.parametrize("queue", ["source", "retry"])
def test_it_arrives_can_be_set_aside_and_lets_those_behind_it_pass(
    rabbitmq_url: str, odd: dict[Any, Any], queue: str
) -> None:
    rabbit = Rabbit(rabbitmq_url)
    world = SourceWorld(rabbit)
    source = RabbitSource.from_url(rabbitmq_url, world.consumer, [world.source], prefetch=1)
    source.open()
    name = world.source if queue == "source" else f"{world.source}.{world.consumer}.retry"
    for headers in (odd, {"n": "2"}):
        rabbit.channel.basic_publish("", name, b"{}", BasicProperties(headers=headers))
    (first,) = fetch(source, 1)
    source.set_aside(first, "odd", 1)
    source.acknowledge([first])
    (second,) = fetch(source, 1)
    assert second.headers == {"n": "2"}
    source.acknowledge([second])
    source.close()
    rabbit.connection.close()
