"""Consumers of NATS in trouble: servers that die, handlers that take long, sources that are patterns."""

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received
from pillarbox.consume.deadletters import Choice, chosen, open_dead_letters, replay
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.nats.names import durable_of
from pillarbox.consume.sources import make_source
from pillarbox.errors import BadConsumer, BrokerUnavailable, SourceMissing
from pillarbox.ports import Source
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_deadletters import ORDER
from pillarbox.testing.conformance.consumer_world import QUICK_RETRY, ConsumerWorld, Thing, a_message, write_effect
from pillarbox.testing.conformance.source_world import SourceWorld, fetch, ids, nothing_comes
from tests.conformance.test_consumer_nats import Nats
from tests.nats_server import OwnNats, own_nats

WAIT = 20


@pytest.fixture(scope="module")
def server() -> Iterator[OwnNats]:
    """Of this module: some of its tests kill or freeze it, and start it again."""
    with own_nats() as server:
        yield server


@pytest.fixture
def nats(server: OwnNats) -> Iterator[Nats]:
    under_test = Nats(server.url)
    yield under_test
    under_test.streams.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    yield engine
    engine.dispose()


@pytest.fixture
def world(nats: Nats, engine: Engine) -> ConsumerWorld:
    return ConsumerWorld(nats, engine)


# The server -----------------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_costs_a_pause_and_nothing_else(world: ConsumerWorld, server: OwnNats) -> None:
    consumer = world.consumer_of_things(options={"ack_wait": 2.0})
    world.send(*[world.message(n) for n in range(20)])
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.applied >= 20, WAIT)
        server.kill()
        server.start()
        world.send(*[world.message(n) for n in range(20, 40)])
        running.wait_until(lambda: consumer.stats.applied >= 40, WAIT)
    assert sorted(map(int, world.notes())) == list(range(40))


@pytest.mark.long
def test_a_server_that_freezes_is_waited_for(world: ConsumerWorld, server: OwnNats) -> None:
    consumer = world.consumer_of_things(options={"ack_wait": 1.0, "deadline": 1.0})
    world.send(world.message(1))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        server.send(signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                running.wait_until(lambda: consumer.stats.applied == 2, 2.5)
            assert running.alive
        finally:
            server.send(signal.SIGCONT)
        world.send(world.message(2))
        running.wait_until(lambda: consumer.stats.applied == 2, WAIT)
    assert world.notes() == ["1", "2"]


@pytest.mark.long
def test_a_consumer_that_is_stopped_while_the_server_is_frozen_ends(world: ConsumerWorld, server: OwnNats) -> None:
    consumer = world.consumer_of_things(options={"deadline": 1.0})
    with consumer.start() as running:
        running.wait_until(lambda: running.alive, WAIT)
        server.send(signal.SIGSTOP)
        started = time.monotonic()
        try:
            running.stop()
        finally:
            server.send(signal.SIGCONT)
    assert time.monotonic() - started < 10


def test_a_consumer_deleted_at_the_server_is_made_again(world: ConsumerWorld, nats: Nats) -> None:
    consumer = world.consumer_of_things()
    world.send(world.message(1))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        nats.streams.api(f"CONSUMER.DELETE.{world.source}.{durable_of(consumer.name, world.source)}")
        world.send(world.message(2))
        running.wait_until(lambda: consumer.stats.applied == 2, WAIT)
    assert world.notes() == ["1", "2"]  # the first came again, and its mark was found


# Time -----------------------------------------------------------------------------------------------------------------


def test_a_handler_may_take_longer_than_the_server_waits(world: ConsumerWorld) -> None:
    consumer, calls = world.consumer(options={"ack_wait": 0.6}, ahead=5), list[int]()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        calls.append(event.payload.n)
        if event.payload.n == 0:
            time.sleep(2.0)
        write_effect(session, event.id, str(event.payload.n))

    world.send(world.message(0), world.message(1))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
    assert (calls, consumer.stats.received) == ([0, 1], 2)


@pytest.mark.long
def test_what_a_killed_process_held_comes_to_another_after_the_ack_wait(nats: Nats) -> None:
    source_world = SourceWorld(nats)
    sent = source_world.send(*[source_world.message(n) for n in range(3)])
    script = f"""
        import os, signal
        from pillarbox.consume.sources import make_source
        member = make_source({nats.broker!r}, {source_world.consumer!r}, [{source_world.source!r}], {{"ack_wait": 1.0}})
        member.open()
        found = []
        while len(found) < 3:
            found += member.poll(0.1, 10)
        member.acknowledge(found[:1])
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=30, check=False).returncode == -9
    with source_world.member() as member:
        again = fetch(member, 2)
        assert ids(again) == sent[1:]
        assert all(one.redelivered for one in again)
        member.acknowledge(again)
        assert nothing_comes(member, 1.2)


@pytest.mark.long
def test_many_retries_that_wait_do_not_hold_up_others(nats: Nats) -> None:
    """The server counts what waits as delivered and not acknowledged, which is bounded by default."""
    source_world = SourceWorld(nats)
    source_world.send(*[source_world.message(n) for n in range(300)])
    with source_world.member(prefetch=50) as member:
        for _ in range(6):
            for incoming in fetch(member, 50):
                member.put_back(incoming, 60.0, "later", 1)
                member.acknowledge([incoming])
        (more,) = source_world.send(source_world.message(9))
        assert ids(fetch(member, 1)) == [more]


# Sources --------------------------------------------------------------------------------------------------------------


def test_patterns_and_several_sources_of_one_stream_come_by_one_consumer(nats: Nats, engine: Engine) -> None:
    name = nats.streams.make("{}.>")
    pattern, plain = f"{name}.orders.*", f"{name}.payments"
    seen = list[str]()
    consumer = Consumer(f"c.{name}", database=engine, broker=nats.broker, sources=[pattern, plain], retry=QUICK_RETRY)

    @consumer.on("thing.happened")
    def handle(event: Received[Thing]) -> None:
        seen.append(f"{event.source} {event.payload.n}")
        if event.payload.n == 2:
            raise ValueError("never")

    assert consumer.reads(f"{name}.orders.created")
    assert not consumer.reads(f"{name}.other")
    nats.send([a_message(f"{name}.orders.{kind}", n) for n, kind in enumerate(["created", "paid", "sent"])])
    nats.send([a_message(plain, 3), a_message(f"{name}.other", 4)])
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 4, WAIT)
    assert set(seen) == {f"{pattern} 0", f"{pattern} 1", f"{pattern} 2", f"{plain} 3"}
    with open_dead_letters(nats.broker, consumer.name, pattern) as box:
        (letter,) = chosen(box, Choice())
        assert (letter.reason, letter.key) == ("ValueError: never", "7")
        assert replay(box, Choice(), ORDER).replayed == 1
        assert list(box.letters()) == []
    with open_dead_letters(nats.broker, consumer.name, plain) as box:
        assert list(box.letters()) == []


def test_a_process_that_does_not_know_a_source_yet_gets_nothing_of_it(nats: Nats) -> None:
    """As while a new version is rolled out: what the old one has no handler for, it would skip."""
    name = nats.streams.make("{}.>")
    old, new = _member(nats.broker, f"{name}.a"), make_source(nats.broker, "stock", [f"{name}.a", f"{name}.b"], {})
    old.open()
    new.open()
    nats.send([a_message(f"{name}.b", n) for n in range(20)])
    got = fetch(new, 20)
    new.put_back(got[0], 0.0, "again", 1)
    new.acknowledge(got)
    assert nothing_comes(old, 0.3)
    assert fetch(new, 1)[0].source == f"{name}.b"
    old.close()
    new.close()


def test_a_source_in_two_streams_and_a_stream_that_is_missing_are_named(nats: Nats) -> None:
    one, _ = nats.streams.make("twin.{}"), nats.streams.make("twin.{}")
    with pytest.raises(BadConsumer, match="spread over the streams"):
        _member(nats.broker, "twin.*").open()
    with pytest.raises(SourceMissing, match=r"PB-042.*'nowhere'"):
        _member(f"{nats.broker}?stream=nowhere", "twin.*").open()
    chosen_one = _member(f"{nats.broker}?stream={one}", f"twin.{one}")
    chosen_one.open()
    chosen_one.close()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"deliver_subject": "somewhere", "ack_policy": "explicit"}, "push consumer"),
        ({"ack_policy": "none"}, "ack policy"),
        ({"ack_policy": "explicit", "max_deliver": 3}, "max_deliver"),
        ({"ack_policy": "explicit"}, "it reads all subjects"),
    ],
)
def test_a_consumer_made_by_somebody_else_that_would_lose_events_is_refused(
    nats: Nats, config: dict[str, object], why: str
) -> None:
    name = nats.streams.make()
    durable = durable_of("stock", name)
    body = {"stream_name": name, "config": {"durable_name": durable, "name": durable, **config}}
    assert "error" not in nats.streams.api(f"CONSUMER.CREATE.{name}.{durable}", body)
    with pytest.raises(BadConsumer, match=why):
        _member(nats.broker, name).open()


def test_nobody_there_is_said_at_the_start() -> None:
    with pytest.raises(BrokerUnavailable, match="PB-005"):
        _member("nats://127.0.0.1:1", "orders").open()


def test_a_dead_letter_near_the_limit_leaves_headers_out_and_names_them(nats: Nats) -> None:
    source_world = SourceWorld(nats)
    headers = '{"small":"s","large":"%s"}' % ("y" * 2_000)
    source_world.send(source_world.message(payload=b"x" * (1024 * 1024 - 2_600), headers=headers))
    with source_world.member() as member:
        (incoming,) = fetch(member, 1)
        member.set_aside(incoming, "ValueError: no", 1)
        member.acknowledge([incoming])
    with open_dead_letters(nats.broker, source_world.consumer, source_world.source) as box:
        (letter,) = box.letters()
    assert letter.headers["deadLetterLeftOut"] == "large"
    assert (letter.headers["small"], letter.size) == ("s", 1024 * 1024 - 2_600)


def _member(broker: str, source: str) -> Source:
    return make_source(broker, "stock", [source], {})
