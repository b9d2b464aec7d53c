"""SIGTERM and SIGINT, sent to a real process that runs ``consumer.run()``."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from pillarbox.consume.engine import consumer_engine
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld
from tests.conformance.test_consumer_embedded import Embedded

SCRIPT = """
    import signal, time
    from sqlalchemy import text
    from sqlalchemy.orm import Session
    from pillarbox import Consumer, Received

    before = signal.getsignal(signal.SIGTERM)
    consumer = Consumer("stock", database={database!r}, broker={broker!r}, sources=[{source!r}], drain={drain})

    @consumer.on("thing.happened")
    def handle(event: Received, session: Session) -> None:
        session.execute(text("INSERT INTO conformance_effect (event_id, note) VALUES ('x', 'y')"))
        print("working", flush=True)
        try:
            time.sleep({seconds})
        except Exception:
            print("swallowed", flush=True)

    consumer.run()
    assert signal.getsignal(signal.SIGTERM) is before
    print("ended", consumer.stats.acknowledged, flush=True)
"""


@pytest.fixture
def world(tmp_path: Path) -> ConsumerWorld:
    engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    return ConsumerWorld(Embedded(tmp_path / "events.log"), engine)


def start(world: ConsumerWorld, folder: Path, *, seconds: float, drain: float) -> subprocess.Popen[str]:
    script = SCRIPT.format(
        database=f"sqlite:///{folder / 'inbox.db'}",
        broker=world.under_test.broker,
        source=world.source,
        seconds=seconds,
        drain=drain,
    )
    (folder / "stock.py").write_text(textwrap.dedent(script))
    world.send(*[world.message(n) for n in range(3)])
    process = subprocess.Popen(
        [sys.executable, "stock.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_finish_and_acknowledges_it(
    world: ConsumerWorld, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(world, tmp_path, seconds=0.5, drain=10)
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "ended 1\n"), err
    assert len(world.effects()) == 1


def test_a_handler_that_outlasts_the_drain_time_is_interrupted_in_its_system_call_and_rolled_back(
    world: ConsumerWorld, tmp_path: Path
) -> None:
    process = start(world, tmp_path, seconds=30, drain=0.5)
    started = time.monotonic()
    process.terminate()
    out, err = process.communicate(timeout=10)
    assert time.monotonic() - started < 5
    assert (out, process.returncode != 0) == ("", True)
    assert "DrainInterrupted" in err
    assert world.effects() == []
    with world.database.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM inbox_event")) == 0


def test_a_second_signal_does_not_wait_for_the_deadline(world: ConsumerWorld, tmp_path: Path) -> None:
    process = start(world, tmp_path, seconds=30, drain=30)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two at once would be one
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert "DrainInterrupted" in err
    assert world.effects() == []
