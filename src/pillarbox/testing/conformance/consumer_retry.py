"""Putting a message back: it comes again later, to its own consumer alone, as it was."""

from __future__ import annotations

import time

import pytest

from ...consume import dead as letters
from ...consume import retries
from ...ports import Incoming, Source
from .consumer_world import WAIT, BrokerUnderTest
from .source_world import SourceWorld, fetch, ids, nothing_comes


class RetryConformance:
    """Needs the fixture ``under_test`` of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def source_world(self, under_test: BrokerUnderTest) -> SourceWorld:
        """The broker and a source of this test's own."""
        return SourceWorld(under_test)

    def test_a_message_that_is_put_back_comes_again_in_time_as_it_was(self, source_world: SourceWorld) -> None:
        source_world.send(source_world.message(headers='{"trace":"ünï-☃","empty":""}', key="k-1"))
        with source_world.member() as member:
            (first,) = fetch(member, 1)
            assert first.attempts == 0
            put = time.monotonic()
            member.put_back(first, 0.5, "ValueError: not yet ☃", 2)
            member.acknowledge([first])
            (again,) = fetch(member, 1)
            assert time.monotonic() - put >= 0.45
            assert again.attempts == 2
            assert (again.source, again.key, again.headers, again.body) == (
                first.source,
                first.key,
                first.headers,
                first.body,
            )
            assert not retries.HEADERS & again.headers.keys()
            member.put_back(again, 0.0, "ValueError: still not", 3)
            member.acknowledge([again])
            (third,) = fetch(member, 1)
            assert (third.attempts, third.headers, third.body) == (3, first.headers, first.body)
            member.acknowledge([third])
        with source_world.member() as member:
            assert nothing_comes(member, 1.0)

    def test_others_go_on_while_it_waits_and_a_short_wait_is_not_held_up_by_a_long_one(
        self, source_world: SourceWorld
    ) -> None:
        source_world.send(*[source_world.message(n) for n in range(3)])
        with source_world.member() as member:
            slow, quick, other = fetch(member, 3)
            member.put_back(slow, 60.0, "later", 1)
            member.put_back(quick, 0.2, "soon", 1)
            member.acknowledge([slow, quick, other])
            (more,) = source_world.send(source_world.message(9))
            got = fetch(member, 2)
            assert set(ids(got)) == {more, *ids([quick])}
            member.acknowledge(got)
            assert nothing_comes(member, 0.5)

    def test_it_comes_again_to_its_own_consumer_alone(self, source_world: SourceWorld) -> None:
        source_world.send(source_world.message())
        with source_world.member() as one, source_world.member("another") as two:
            first, mine, others = whoever_gets_it(one, two)
            if source_world.under_test.capabilities.broadcast:
                others.acknowledge(fetch(others, 1))
            mine.put_back(first, 0.1, "again", 1)
            mine.acknowledge([first])
            again = fetch(mine, 1)
            assert ids(again) == ids([first])
            assert nothing_comes(others, 1.0)
            mine.acknowledge(again)

    def test_what_was_put_back_and_not_finished_survives_its_consumer(self, source_world: SourceWorld) -> None:
        source_world.send(source_world.message())
        with source_world.member() as member:
            (first,) = fetch(member, 1)
            member.put_back(first, 0.3, "again", 4)
            member.acknowledge([first])
        with source_world.member() as member:
            (again,) = fetch(member, 1)
            assert again.attempts == 4
        with source_world.member() as member:
            (once_more,) = fetch(member, 1)
            assert (ids([once_more]), once_more.attempts) == (ids([first]), 4)
            member.acknowledge([once_more])

    def test_a_dead_letter_after_a_retry_carries_the_original_and_nothing_of_the_retry(
        self, source_world: SourceWorld
    ) -> None:
        source_world.send(source_world.message(headers='{"trace":"t-1"}'))
        with source_world.member() as member:
            (first,) = fetch(member, 1)
            member.put_back(first, 0.1, "once", 1)
            member.acknowledge([first])
            (again,) = fetch(member, 1)
            member.set_aside(again, "ValueError: for good", 2)
            member.acknowledge([again])
            name = letters.dead_name(source_world.source, source_world.consumer)
            (dead,) = source_world.under_test.dead_letters(name, 1)
            assert dead.body == first.body
            assert {name: dead.headers[name] for name in first.headers} == first.headers
            assert dead.headers[letters.SOURCE] == source_world.source
            assert (dead.headers[letters.REASON], dead.headers[letters.ATTEMPTS]) == ("ValueError: for good", "2")
            assert dead.headers[letters.POSITION]
            assert not retries.HEADERS & dead.headers.keys()


def whoever_gets_it(one: Source, two: Source) -> tuple[Incoming, Source, Source]:
    """The first message, the member that got it, and the other one: a queue gives it to one of them."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        for mine, others in ((one, two), (two, one)):
            for incoming in mine.poll(0.1, 1):
                return incoming, mine, others
    raise AssertionError("nobody got it")
