"""Members of one group on the embedded log."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from pillarbox import Received
from pillarbox.consume.embedded import EmbeddedSource
from pillarbox.consume.engine import consumer_engine
from pillarbox.errors import AccessRefused, BadUrl, BrokerUnavailable
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, write_effect
from tests.conformance.test_consumer_embedded import Embedded


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ConsumerWorld]:
    engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    under_test = Embedded(tmp_path / "events.log")
    yield ConsumerWorld(under_test, engine)
    under_test.log.close()
    engine.dispose()


def test_two_members_share_the_partitions_and_apply_everything_once(world: ConsumerWorld) -> None:
    first, second = (world.consumer_of_things("shared", options={"lease": 1.0}) for _ in range(2))
    with first.start(), second.start() as running:
        running.wait_until(lambda: world.send(world.message(key=str(time.monotonic()))) or second.stats.applied > 0)
        sent = len(world.under_test.log.records(world.source))  # type: ignore[attr-defined]
        running.wait_until(lambda: len(world.effects()) == sent)
    assert first.stats.applied + second.stats.applied == sent
    assert first.stats.applied > 0
    world.assert_all_acknowledged(first)


def test_a_handler_may_take_longer_than_the_lease(world: ConsumerWorld) -> None:
    entered, runs = threading.Event(), list[int]()
    first, second = (world.consumer("shared", options={"lease": 0.4}) for _ in range(2))

    def slow(event: Received[Thing], session: Session) -> None:
        runs.append(event.payload.n)
        entered.set()
        time.sleep(1.2)
        write_effect(session, event.id)

    for consumer in (first, second):
        consumer.on("thing.happened")(slow)
    world.send(world.message(1))
    with first.start() as running:
        assert entered.wait(5)
        with second.start():
            running.wait_until(lambda: first.stats.acknowledged == 1)
    assert runs == [1]
    assert (second.stats.received, first.stats.dropped) == (0, 0)


def test_a_file_that_cannot_be_used_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no log, and long enough to be looked at as a file header " * 20)
    for url in (f"embedded://{tmp_path / 'text'}", f"embedded://{tmp_path}", "embedded:///no/such/folder/x.log"):
        source = EmbeddedSource.from_url(url, "c", ["orders"])
        with pytest.raises((BadUrl, AccessRefused, BrokerUnavailable), match=r"PB-00\d"):
            source.open()
        source.close()
