"""PB-028: a publisher that was opened before a fork refuses to work in the child, and still works in the parent."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.errors import UsedAfterFork
from pillarbox.event.destination import Destination, Exchange, Topic
from pillarbox.ports import Confirmed, Publisher
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message
from tests.nats_server import Streams

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

REFUSED, WORKED, OTHER = 0, 1, 2


def test_the_embedded_log_is_not_used_across_a_fork(tmp_path: Path) -> None:
    check(open_publisher(f"embedded://{tmp_path}/events.log"), Topic("t"))


def test_a_kafka_client_is_not_used_across_a_fork(kafka_url: str, make_topic: Callable[..., str]) -> None:
    check(open_publisher(kafka_url, deadline=10), Topic(make_topic(1)))


def test_a_child_of_a_process_that_publishes_to_kafka_ends_as_any_other(
    kafka_url: str, make_topic: Callable[..., str]
) -> None:
    """The interpreter takes apart what the child inherited; a client of Kafka's for questions would crash there."""
    script = f"""
import os, sys, threading, time
from pillarbox.event.destination import Topic
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message
publisher = open_publisher({kafka_url!r}, deadline=10)
publisher.publish([message(Topic({make_topic(1)!r}))])
deadline = time.monotonic() + 20
while any("replication" in one.name for one in threading.enumerate()) and time.monotonic() < deadline:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    sys.exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
publisher.close()
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr.decode()


def test_a_rabbitmq_connection_is_not_used_across_a_fork(rabbitmq_url: str) -> None:
    check(open_publisher(rabbitmq_url, deadline=5), Exchange("amq.fanout", ""), confirmed=False)


def test_a_nats_connection_is_not_used_across_a_fork(nats_url: str) -> None:
    with closing(Streams(nats_url)) as streams:
        check(open_publisher(nats_url, deadline=5), Topic(streams.make()))


def check(publisher: Publisher, there: Destination, *, confirmed: bool = True) -> None:
    publisher.publish([message(there)])
    child = os.fork()
    if child == 0:
        status = OTHER
        try:
            publisher.publish([message(there)])
            status = WORKED
        except UsedAfterFork:
            publisher.close()  # must neither hang nor harm the parent's connection
            status = REFUSED
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == REFUSED
    (outcome,) = publisher.publish([message(there)])
    assert isinstance(outcome, Confirmed) or not confirmed
    publisher.close()
