"""Acknowledging in any order: what is finished never comes again, what is not always does."""

from __future__ import annotations

import pytest

from .consumer_world import BrokerUnderTest
from .source_world import SourceWorld, fetch, ids, nothing_comes


class PositionConformance:
    """Needs the fixture ``under_test`` of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def source_world(self, under_test: BrokerUnderTest) -> SourceWorld:
        """The broker and a source of this test's own."""
        return SourceWorld(under_test)

    def test_what_is_not_finished_comes_again_however_much_behind_it_is(self, source_world: SourceWorld) -> None:
        sent = source_world.send(*[source_world.message(n) for n in range(6)])
        with source_world.member() as member:
            got = fetch(member, 6)
            assert ids(got) == sent
            member.acknowledge([got[5], got[1]])
            member.acknowledge([got[4], got[2], got[0]])
        with source_world.member() as member:
            again = fetch(member, 1)
            assert ids(again)[0] == sent[3]  # the only one for sure: a log gives those behind it, too

    def test_when_the_gap_is_closed_everything_is_finished(self, source_world: SourceWorld) -> None:
        source_world.send(*[source_world.message(n) for n in range(5)])
        with source_world.member() as member:
            got = fetch(member, 5)
            member.acknowledge(got[1:])
            member.acknowledge(got[:1])
        (last,) = source_world.send(source_world.message(9))
        with source_world.member() as member:
            assert ids(fetch(member, 1)) == [last]

    def test_each_key_goes_on_beside_one_that_is_not_finished(self, source_world: SourceWorld) -> None:
        sent = source_world.send(*[source_world.message(n, key=f"k{n}") for n in range(12)])
        with source_world.member() as member:
            got = fetch(member, 12)
            slow = got[3]
            member.acknowledge([one for one in got if one is not slow])
            assert member.holds(slow)
            more = source_world.send(*[source_world.message(n, key=f"k{n}") for n in range(3)])
            assert sorted(ids(fetch(member, 3))) == sorted(more)
        with source_world.member() as member:
            assert ids([slow])[0] in ids(fetch(member, 4))
        assert len(set(sent)) == 12

    def test_a_pause_delivers_nothing_and_loses_nothing(self, source_world: SourceWorld) -> None:
        with source_world.member() as member:
            sent = source_world.send(*[source_world.message(n) for n in range(4)])
            for _ in range(8):
                assert member.poll(0.1, 0) == []
            assert ids(fetch(member, 4, limit=2)) == sent
            assert nothing_comes(member, 0.3)
