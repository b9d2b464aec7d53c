"""Real consumer processes, one of them killed while it works."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import text

from pillarbox.consume.engine import consumer_engine
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld
from tests.conformance.test_consumer_rabbitmq import Rabbit

MODULE = """
    import time, os
    from sqlalchemy import text
    from sqlalchemy.orm import Session
    from pillarbox import Consumer, Received

    consumer = Consumer(
        "stock", database={database!r}, broker={broker!r}, sources=[{source!r}], options={{"prefetch": 200}}, ahead=200
    )

    @consumer.on("thing.happened")
    def handle(event: Received, session: Session) -> None:
        session.execute(
            text("INSERT INTO conformance_effect (event_id, note) VALUES (:id, :pid)"),
            {{"id": event.id, "pid": str(os.getpid())}},
        )
        time.sleep(0.1)
"""


@contextmanager
def consumer_process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "pillarbox", "consume", "stock:consumer"], cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_a_consumer_killed_with_a_large_prefetch_loses_nothing(
    rabbitmq_url: str, postgres_url: str, tmp_path: Path
) -> None:
    """C002: what a killed process had fetched comes again to the other one; acknowledged was only what is committed."""
    engine, rabbit = consumer_engine(postgres_url), Rabbit(rabbitmq_url)
    install(engine, ["inbox"])
    world = ConsumerWorld(rabbit, engine)
    module = MODULE.format(database=postgres_url, broker=rabbitmq_url, source=world.source)
    (tmp_path / "stock.py").write_text(textwrap.dedent(module))
    sent = [world.message(n) for n in range(40)]
    with ExitStack() as processes:
        victim, other = (processes.enter_context(consumer_process(tmp_path)) for _ in range(2))
        wait_until(lambda: rabbit.channel.queue_declare(world.source, passive=True).method.consumer_count == 2)
        world.send(*sent)
        wait_until(lambda: set(world.notes()) == {str(victim.pid), str(other.pid)})
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: len(world.effects()) >= len(sent))
    assert sorted(world.effects()) == sorted(message.event_id for message in sent)
    assert world.notes().count(str(victim.pid)) < len(sent) / 2
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM inbox_event")) == len(sent)
    engine.dispose()
    rabbit.connection.close()


def wait_until(condition: Callable[[], bool], timeout: float = 30.0) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
