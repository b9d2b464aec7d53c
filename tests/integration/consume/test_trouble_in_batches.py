"""The consumer's database breaks under batches and workers: charged to nobody, applied once, it goes on by itself."""
# ruff: noqa: F811 - fixtures of another module are named like the parameters that take them

import threading

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from pillarbox import Received, RetryPolicy
from pillarbox.consume.engine import consumer_engine
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, crash_at, write_effect
from tests.integration.consume.test_database_trouble import (  # noqa: F401 - fixtures
    BehindProxy,
    _no_long_pauses,
    behind,
    database_name,
    direct,
    write_effect_row,
)


def test_a_pooled_connection_that_broke_before_its_first_use_is_an_outage_and_no_crash(behind: BehindProxy) -> None:
    consumer = behind.consumer(retry=RetryPolicy(max_attempts=1))
    with consumer.start() as running:
        behind.proxy.cut()  # the one that looked at the tables is back in the pool
        behind.world.send(behind.world.message(1))
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    assert (behind.world.notes(), consumer.stats.dead) == (["1"], 0)


def test_the_database_away_in_the_middle_of_a_batch_charges_nobody_and_applies_all_once(behind: BehindProxy) -> None:
    consumer, tries = behind.world.consumer(database=behind.engine, batch=20, retry=RetryPolicy(max_attempts=1)), [0]

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        tries[0] += 1
        if tries[0] == 5:
            behind.proxy.cut()
        write_effect(session, event.id, str(event.payload.n))

    behind.world.send(*[behind.world.message(n, key=f"k{n % 3}") for n in range(12)])
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 12, 20)
    assert sorted(map(int, behind.world.notes())) == list(range(12))
    assert (behind.world.marks(consumer), consumer.stats.dead, consumer.stats.applied) == (12, 0, 12)


def test_a_batch_whose_commit_had_no_answer_is_found_done_by_its_marks(behind: BehindProxy) -> None:
    consumer = behind.consumer(retry=RetryPolicy(max_attempts=1), batch=20)
    behind.world.send(*[behind.world.message(n) for n in range(6)])

    def lose_it() -> bool:
        behind.proxy.lose_answers()
        threading.Timer(0.3, behind.proxy.heal).start()
        return False

    with crash_at("consumer.after-handler", when=lose_it), consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 6, 20)
    assert (consumer.stats.applied, consumer.stats.duplicates, consumer.stats.database_away) == (0, 6, 1)
    assert behind.world.notes() == [str(n) for n in range(6)]


def test_a_hundred_deliveries_of_one_event_have_one_effect_whoever_gets_them(behind: BehindProxy) -> None:
    """Two members with several workers each, all of them after the same mark."""
    members = [behind.world.consumer_of_things("one-name", workers=4, batch=size) for size in (1, 5)]
    message = behind.world.message(key=None)
    behind.world.send(*[message] * 100)
    with members[0].start() as running, members[1].start():
        running.wait_until(lambda: sum(member.stats.acknowledged for member in members) == 100, 60)
    assert behind.world.effects() == [message.event_id]
    assert sum(member.stats.applied for member in members) == 1
    assert sum(member.stats.duplicates for member in members) == 99
    assert sum(member.stats.dead for member in members) == 0


def test_two_consumers_of_one_name_on_different_databases_share_the_events_and_each_effect_is_in_one(
    behind: BehindProxy, sqlite_url: str
) -> None:
    """They are one group for the broker. What moves between them after a crash may be applied in both: documented."""
    other = consumer_engine(sqlite_url)
    install(other, ["inbox"])
    worlds = behind.world, ConsumerWorld(behind.world.under_test, other)
    worlds[1].source = behind.world.source
    members = [world.consumer_of_things("one-name") for world in worlds]
    sent = [behind.world.message(n, key=f"k{n}") for n in range(20)]
    behind.world.send(*sent)
    with members[0].start() as running, members[1].start():
        running.wait_until(lambda: sum(member.stats.acknowledged for member in members) == 20)
    assert sorted(worlds[0].effects() + worlds[1].effects()) == sorted(message.event_id for message in sent)
    other.dispose()


@pytest.mark.parametrize("batch", [1, 10])
def test_a_deadlock_in_handlers_of_workers_is_tried_again_as_a_whole(behind: BehindProxy, batch: int) -> None:
    world = behind.world
    consumer, meet, first_try = world.consumer(workers=2, batch=batch), threading.Barrier(2), {"a": True, "b": True}
    with world.database.begin() as connection:
        write_effect_row(connection, "row-a")
        write_effect_row(connection, "row-b")

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        mine = str(event.key)
        order = ["row-a", "row-b"] if mine == "a" else ["row-b", "row-a"]
        write_effect(session, event.id, mine)
        update = text("UPDATE conformance_effect SET note = :mine WHERE event_id = :row")
        for number, row in enumerate(order):
            session.execute(update, {"mine": mine, "row": row})
            if number == 0 and first_try[mine]:
                first_try[mine] = False
                meet.wait(10)

    with consumer.start() as running:
        world.send(world.message(1, key="a"))
        running.wait_until(lambda: not first_try["a"])
        world.send(world.message(2, key="b"))
        running.wait_until(lambda: consumer.stats.acknowledged == 2, 30)
    assert sorted(note for note in world.notes() if note in ("a", "b")) != []
    assert (len(world.effects()), world.marks(consumer)) == (4, 2)
    assert consumer.stats.retried >= 1
    assert consumer.stats.dead == 0
