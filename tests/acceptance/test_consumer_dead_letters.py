"""`pillarbox dead-letters`: what a consumer gave up is listed, and sent again to it alone, whatever the broker."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from pillarbox import Received
from pillarbox.consume.engine import consumer_engine
from pillarbox.embedded import EmbeddedLog
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import BrokerUnderTest, ConsumerWorld, Thing, write_effect
from tests.conformance.test_consumer_embedded import Embedded
from tests.conformance.test_consumer_kafka import Kafka
from tests.conformance.test_consumer_nats import Nats
from tests.conformance.test_consumer_rabbitmq import Rabbit

from .processes import COMMAND, Inline, environment


@pytest.fixture(params=["embedded", "kafka", "rabbitmq", "nats"])
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerUnderTest]:
    if request.param == "embedded":
        embedded = Embedded(tmp_path / "events.log")
        yield embedded
        embedded.log.close()
    elif request.param == "kafka":
        needed = [request.getfixturevalue(name) for name in ("kafka_url", "kafka_admin", "make_topic")]
        kafka = Kafka(*needed)
        yield kafka
        kafka.clean_up()
    elif request.param == "nats":
        nats = Nats(request.getfixturevalue("nats_url"))
        yield nats
        nats.streams.close()
    else:
        rabbit = Rabbit(request.getfixturevalue("rabbitmq_url"))
        yield rabbit
        rabbit.connection.close()


@pytest.fixture
def world(under_test: BrokerUnderTest, tmp_path: Path) -> Iterator[ConsumerWorld]:
    engine: Engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    yield ConsumerWorld(under_test, engine)
    engine.dispose()


def test_a_replayed_dead_letter_is_applied_once_by_the_consumer_that_gave_it_up_and_by_no_other(
    world: ConsumerWorld, inline: Inline
) -> None:
    consumer, mended = world.consumer(), list[bool]()
    healthy = world.consumer_of_things() if world.under_test.capabilities.broadcast else None

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id, "mended")
        if event.payload.n == 2 and not mended:
            raise KeyError("stock")

    sent = [world.message(n, key=f"k{n}") for n in range(4)]
    world.send(*sent)
    bad = sent[2].event_id
    names = ["--consumer", consumer.name, "--source", world.source, "--broker", str(world.under_test.broker)]

    def run(*arguments: str) -> Any:
        done = inline.run("dead-letters", *arguments, *names, "--json")
        assert done.code == 0, done.err
        return done.json

    with consumer.start() as running:
        if healthy is not None:
            with healthy.start():
                running.wait_until(lambda: healthy.stats.acknowledged == 4, 40)
        running.wait_until(lambda: consumer.stats.acknowledged == 4, 40)
        (letter,) = run("list")["dead_letters"]
        assert (letter["event_id"], letter["attempts"], letter["event_type"]) == (bad, "3", "thing.happened")
        assert "KeyError" in letter["reason"]
        mended.append(True)
        assert run("replay", bad, "--dry-run") == {"matched": 1, "replayed": 0, "missing": [], "dry_run": True}
        assert run("replay", bad, "--by", "ann", "--reason", "mended")["replayed"] == 1
        running.wait_until(lambda: consumer.stats.applied == 4, 40)
        assert run("list") == {"dead_letters": []}
    applied = [event_id for event_id, note in zip(world.effects(), world.notes(), strict=True) if note == "mended"]
    assert sorted(applied) == sorted(message.event_id for message in sent)
    if healthy is not None:
        assert healthy.stats.received == 4
    nothing = inline.run("dead-letters", "replay", bad, *names)
    assert (nothing.code, nothing.out) == (1, "No dead letter matches.\n")
    nothing.says(f"no dead letters: {bad}")


_KILLED = """
import os, signal
from pillarbox import faultpoints
from pillarbox.cli import main
passed = []
def hook(name):
    passed.append(name)
    if passed.count("dead-letters.sent") == 2:
        os.kill(os.getpid(), signal.SIGKILL)
faultpoints.attach(hook)
main()
"""


def test_a_replay_killed_in_the_middle_and_run_again_applies_each_event_once(
    world: ConsumerWorld, inline: Inline
) -> None:
    consumer, mended = world.consumer(), list[bool]()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        if not mended:
            raise KeyError("stock")
        write_effect(session, event.id)

    sent = [world.message(n) for n in range(4)]
    world.send(*sent)
    names = ["--consumer", consumer.name, "--source", world.source, "--broker", str(world.under_test.broker)]
    arguments = ["dead-letters", "replay", "--all", "--yes", *names]
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 4, 40)
        mended.append(True)
        killed = subprocess.run(
            [sys.executable, "-c", _KILLED, *arguments], env=environment(None), timeout=60, check=False
        )
        assert killed.returncode == -9
        again = subprocess.run(
            [*COMMAND, *arguments], env=environment(None), timeout=60, capture_output=True, text=True, check=False
        )
        assert again.returncode == 0, again.stderr
        assert again.stderr.count("goes to its consumer again, by ") == 3  # noted in the log, each
        running.wait_until(lambda: consumer.stats.duplicates == 1 and consumer.stats.applied == 4, 40)
    assert sorted(world.effects()) == sorted(message.event_id for message in sent)


def test_names_that_nobody_has_and_choices_that_say_nothing_are_refused(inline: Inline, tmp_path: Path) -> None:
    broker = f"embedded://{tmp_path / 'events.log'}"
    names = ["--consumer", "nobody", "--source", "nothing", "--broker", broker]
    inline.run("dead-letters", "list", *names).says("[PB-042]", "no embedded log at")
    assert not (tmp_path / "events.log").exists()
    log = EmbeddedLog(str(tmp_path / "events.log"))
    log.create_topic("orders", 1)
    log.close()
    missing = inline.run("dead-letters", "list", *names)
    assert missing.code == 1
    missing.says("[PB-042]", "nothing.nobody.dead")
    assert inline.run("dead-letters", "replay", *names).code == 2
    assert inline.run("dead-letters", "replay", "--all", "one-id", *names).code == 2
