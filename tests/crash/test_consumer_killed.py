"""A consumer's process killed with SIGKILL at each of its fault points, with workers, in batches and in an event loop.

RabbitMQ and PostgreSQL. The killed process is followed by a second one of the same name, which finds what was left.
"""

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from pillarbox.testing.conformance.consumer_world import ConsumerWorld
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_rabbitmq import Rabbit

EVENTS = 60
POINTS = ["consumer.received", "consumer.after-handler", "consumer.after-commit", "consumer.after-ack"]
MODES = ["workers=1", "workers=3", "batch=10", "batch=5, workers=2"]
SLICE = set(zip(POINTS, ["batch=10", "workers=3", "batch=5, workers=2", "workers=1"], strict=True))
"""What runs always; each is two processes, and all of them take a minute."""

SCRIPT = """
    import os, signal, sys
    from sqlalchemy import text
    from sqlalchemy.orm import Session
    from sqlalchemy.ext.asyncio import AsyncSession
    from pillarbox import Consumer, Received, faultpoints

    point, times = sys.argv[1], int(sys.argv[2])
    passages = 0

    def kill(name):
        global passages
        passages += name == point
        if passages == times:
            os.kill(os.getpid(), signal.SIGKILL)

    faultpoints.attach(kill)
    consumer = Consumer("stock", database={database!r}, broker={broker!r}, sources=[{source!r}], {mode}, ahead=20)
    insert = text("INSERT INTO conformance_effect (event_id, note) VALUES (:id, '')")

    if consumer.asynchronous:
        @consumer.on("thing.happened")
        async def reserve(event: Received, session: AsyncSession) -> None:
            await session.execute(insert, {{"id": event.id}})
    else:
        @consumer.on("thing.happened")
        def handle(event: Received, session: Session) -> None:
            session.execute(insert, {{"id": event.id}})

    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.applied + consumer.stats.duplicates >= int(sys.argv[3]), 60)
    print(consumer.stats.duplicates)
"""


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:

    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


def killed_and_followed(engine: Engine, rabbitmq_url: str, folder: Path, *, point: str, mode: str, driver: str) -> None:
    rabbit = Rabbit(rabbitmq_url)
    world = ConsumerWorld(rabbit, engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM inbox_event"))
    sent = [world.message(n, key=f"k{n % 7}") for n in range(EVENTS)]
    world.send(*sent)
    database = engine.url.set(drivername=driver).render_as_string(hide_password=False)
    script = SCRIPT.format(database=database, broker=rabbitmq_url, source=world.source, mode=mode)
    (folder / "stock.py").write_text(textwrap.dedent(script))

    times = {"consumer.received": 33, "consumer.after-ack": 1}.get(point, 3)
    command = [sys.executable, "stock.py", point, str(times), "1000000"]
    assert subprocess.run(command, cwd=folder, timeout=60, check=False).returncode == -9, "it never came there"
    left = left_by_the_dead(rabbit, world.source)
    follower = [sys.executable, "stock.py", "nowhere", "1", str(left)]
    done = subprocess.run(follower, cwd=folder, timeout=90, check=True, capture_output=True, text=True)

    assert sorted(world.effects()) == sorted(message.event_id for message in sent)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM inbox_event")) == EVENTS
    if point == "consumer.after-commit":
        assert int(done.stdout) > 0  # else the kill did not hit where it says
    assert rabbit.channel.queue_declare(world.source, passive=True).method.message_count == 0
    rabbit.connection.close()


def left_by_the_dead(rabbit: Rabbit, queue: str) -> int:
    """Messages in the queue, once the broker knows that the process is gone."""
    until = time.monotonic() + 20
    while (found := rabbit.channel.queue_declare(queue, passive=True).method).consumer_count:
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(found.message_count)


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        pytest.param(point, mode, marks=[] if (point, mode) in SLICE else [pytest.mark.long])
        for point in POINTS
        for mode in MODES
    ],
)
def test_a_consumer_killed_there_loses_nothing_and_applies_nothing_twice(
    engine: Engine, rabbitmq_url: str, tmp_path: Path, point: str, mode: str
) -> None:
    """C001, C002: what was fetched and not committed comes again, what was committed is found by its mark."""
    killed_and_followed(engine, rabbitmq_url, tmp_path, point=point, mode=mode, driver="postgresql+psycopg")


def test_an_async_consumer_killed_there_loses_nothing_and_applies_nothing_twice(
    engine: Engine, rabbitmq_url: str, tmp_path: Path
) -> None:
    killed_and_followed(
        engine, rabbitmq_url, tmp_path, point="consumer.after-commit", mode="workers=3", driver="postgresql+asyncpg"
    )
