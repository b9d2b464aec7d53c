"""A consumer's process killed with SIGKILL at each of its fault points, with workers, in batches and in an event loop.

RabbitMQ with PostgreSQL, and Kafka with MySQL. A second process of the same name finds what was left.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import Engine, text

from pillarbox.testing.conformance.consumer_world import ConsumerWorld
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_kafka import Kafka
from tests.conformance.test_consumer_rabbitmq import Rabbit
from tests.crash.killed_consumer import EVENTS, MODES, POINTS, Program, duplicates_of
from tests.servers import unique
from tests.services_fixtures import MakeTopic

ALWAYS = {
    "rabbitmq": set(zip(POINTS, ["batch=10", "workers=3", "batch=5, workers=2", "workers=1"], strict=True)),
    "kafka": {("consumer.after-handler", "batch=5, workers=2"), ("consumer.after-commit", "workers=3")},
}
"""What runs always; each is two processes, and all of them take minutes."""


def cases(broker: str) -> list[object]:
    return [
        pytest.param(point, mode, marks=[] if (point, mode) in ALWAYS[broker] else [pytest.mark.long])
        for point in POINTS
        for mode in MODES
    ]


@pytest.fixture(scope="module")
def postgres(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


@pytest.fixture(scope="module")
def mysql(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "mysql", tmp_path_factory) as engine:
        yield engine


def killed_and_followed(
    world: ConsumerWorld, program: Program, point: str, follow: Callable[[], subprocess.Popen[str]]
) -> None:
    """``follow`` starts the next process, and returns when that has had everything, or will end by itself then."""
    with world.database.begin() as connection:
        connection.execute(text("DELETE FROM inbox_event"))
    sent = [world.message(n, key=f"k{n % 7}") for n in range(EVENTS)]
    world.send(*sent)
    program.killed_at(point)
    with follow() as follower:
        duplicates = duplicates_of(follower)
    assert sorted(world.effects()) == sorted(message.event_id for message in sent)
    with world.database.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM inbox_event")) == EVENTS
    if point == "consumer.after-commit":
        assert duplicates > 0  # else the kill did not hit where it says
    assert world.under_test.unacknowledged(world.source, program.name) == 0


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def on_rabbitmq(engine: Engine, url: str, folder: Path, *, point: str, mode: str, driver: str) -> None:
    rabbit = Rabbit(url)
    world = ConsumerWorld(rabbit, engine)
    database = engine.url.set(drivername=driver).render_as_string(hide_password=False)

    program = Program(folder, database, url, world.source, mode)

    def follow() -> subprocess.Popen[str]:
        # The queue tells how much is left once the broker knows that the process is gone.
        wait_until(lambda: rabbit.channel.queue_declare(world.source, passive=True).method.consumer_count == 0)
        return program.followed(rabbit.unacknowledged(world.source, program.name))

    killed_and_followed(world, program, point, follow)
    rabbit.connection.close()


@pytest.mark.parametrize(("point", "mode"), cases("rabbitmq"))
def test_a_consumer_killed_there_loses_nothing_and_applies_nothing_twice(
    postgres: Engine, rabbitmq_url: str, tmp_path: Path, point: str, mode: str
) -> None:
    """C001, C002: what was fetched and not committed comes again, what was committed is found by its mark."""
    on_rabbitmq(postgres, rabbitmq_url, tmp_path, point=point, mode=mode, driver="postgresql+psycopg")


def test_an_async_consumer_killed_there_loses_nothing_and_applies_nothing_twice(
    postgres: Engine, rabbitmq_url: str, tmp_path: Path
) -> None:
    on_rabbitmq(
        postgres, rabbitmq_url, tmp_path, point="consumer.after-commit", mode="workers=3", driver="postgresql+asyncpg"
    )


@pytest.mark.parametrize(("point", "mode"), cases("kafka"))
def test_a_kafka_consumer_killed_there_loses_nothing_and_applies_nothing_twice(
    mysql: Engine,
    kafka_url: str,
    kafka_admin: AdminClient,
    make_topic: MakeTopic,
    tmp_path: Path,
    point: str,
    mode: str,
) -> None:
    """The follower is the same static member, so that the group need not find out first that the other one is dead."""
    kafka = Kafka(kafka_url, kafka_admin, make_topic)
    world = ConsumerWorld(kafka, mysql)
    program = Program(
        tmp_path,
        mysql.url.render_as_string(hide_password=False),
        kafka_url,
        world.source,
        mode,
        name=unique("stock"),
        options={"config": {"group.instance.id": "stock-1", "session.timeout.ms": 6000}},
    )

    def follow() -> subprocess.Popen[str]:
        # A commit of the dead one may still be on its way to the broker: so not by a count.
        follower = program.followed(None)
        try:
            wait_until(lambda: kafka.unacknowledged(world.source, program.name) == 0)
            follower.terminate()
        except BaseException:
            follower.kill()
            raise
        return follower

    killed_and_followed(world, program, point, follow)
    kafka.clean_up()
