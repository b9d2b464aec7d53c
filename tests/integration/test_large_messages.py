"""Large messages pass through bounded memory: the clients' queues are back-pressure, not a second store."""

import subprocess
import sys

import pika
import pytest

SCRIPT = """
import resource, sys
from pillarbox.event.destination import Exchange, Topic
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import messages

url, name, way = sys.argv[1:]
there = Exchange("", name) if url.startswith("amqp") else Topic(name)
publisher = open_publisher(url, deadline=60)
publish = getattr(publisher, way)
publish(messages(there, 100))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
payload = bytes(1024 * 1024)  # one object for all: what grows is the publisher's own
outcomes = publish([one._replace(payload=payload) for one in messages(there, 300)])
assert {type(one).__name__ for one in outcomes} == {"Confirmed"}, outcomes[:3]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
publisher.close()
"""


@pytest.mark.parametrize("way", ["publish", "publish_in_order"])
def test_300_messages_of_a_MiB_take_a_third_of_it_at_most(
    request: pytest.FixtureRequest, broker_name: str, broker_url: str, way: str
) -> None:
    if broker_name == "kafka":
        limits = {"max_message_bytes": "2000000", "retention_bytes": "20000000", "segment_bytes": "10000000"}
        name = request.getfixturevalue("make_topic")(3, **limits)
    else:
        name = small_queue(broker_url)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker_url, name, way], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100


def small_queue(url: str) -> str:
    """A queue that keeps the last 20 messages only."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare("events", durable=True, arguments={"x-max-length": 20})
    return "events"
