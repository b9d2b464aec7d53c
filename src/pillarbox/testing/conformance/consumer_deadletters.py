"""Dead letters looked at and sent again: to their own consumer alone, at least once, never lost."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ...consume import dead as letters
from ...consume import retries
from ...consume.deadletters import Choice, Letter, Order, Replayed, chosen, open_dead_letters, replay
from ...errors import SourceMissing
from ...ports import Source
from .consumer_world import BrokerUnderTest, Crash, crash_at
from .source_world import SourceWorld, fetch, ids, nothing_comes

ORDER = Order("ann@desk", "the bug is mended", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


class DeadLetterConformance:
    """Needs the fixture ``under_test`` of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def source_world(self, under_test: BrokerUnderTest) -> SourceWorld:
        """The broker and a source of this test's own."""
        return SourceWorld(under_test)

    def test_a_look_tells_why_and_changes_nothing(self, source_world: SourceWorld) -> None:
        with source_world.member() as member:
            sent = give_up(source_world, member, 3)
        for _ in range(2):
            found = look(source_world)
            assert [letter.event_id for letter in found] == sent
        first = found[0]
        assert (first.event_type, first.reason, first.attempts) == ("thing.happened", "ValueError: no. 0", "3")
        assert (first.key, first.size) == ("7", len(b'{"n":0}'))
        assert first.position
        assert datetime.fromisoformat(first.given_up_at).utcoffset() is not None
        assert [letter.event_id for letter in look(source_world, Choice(reason="no. 1"))] == sent[1:2]
        assert [letter.event_id for letter in look(source_world, Choice(limit=2))] == sent[:2]

    def test_a_replayed_letter_comes_as_it_was_to_its_consumer_alone_and_leaves(
        self, source_world: SourceWorld
    ) -> None:
        with source_world.member() as member:
            sent = give_up(source_world, member, 3)
            with source_world.member("another") as other:
                if source_world.under_test.capabilities.broadcast:
                    other.acknowledge(fetch(other, 3))
                assert send_again(source_world, Choice(frozenset({sent[1]}))) == Replayed(1, 1, [])
                (again,) = fetch(member, 1)
                assert (ids([again]), again.body, again.key, again.attempts) == ([sent[1]], b'{"n":1}', "7", 0)
                assert again.source == source_world.source
                assert not (letters.ADDED | retries.HEADERS) & again.headers.keys()
                assert nothing_comes(other, 1.0)
            member.acknowledge([again])
        assert [letter.event_id for letter in look(source_world)] == [sent[0], sent[2]]
        assert send_again(source_world, Choice(frozenset({sent[1]}))) == Replayed(0, 0, [sent[1]])

    def test_all_of_them_or_a_few_can_be_replayed_and_a_dry_run_only_counts(self, source_world: SourceWorld) -> None:
        with source_world.member() as member:
            sent = give_up(source_world, member, 4)
            assert send_again(source_world, Choice(), dry_run=True) == Replayed(4, 0, [])
            assert send_again(source_world, Choice(limit=1)) == Replayed(1, 1, [])
            assert ids(fetch(member, 1)) == sent[:1]
            assert send_again(source_world, Choice()) == Replayed(3, 3, [])
            assert sorted(ids(fetch(member, 3))) == sorted(sent[1:])
        assert look(source_world) == []

    def test_a_replay_that_is_killed_in_the_middle_loses_none(self, source_world: SourceWorld) -> None:
        with source_world.member() as member:
            sent = give_up(source_world, member, 3)
            with crash_at("dead-letters.sent"), pytest.raises(Crash):
                send_again(source_world, Choice())
            assert ids(fetch(member, 1)) == sent[:1]
            assert [letter.event_id for letter in look(source_world)] == sent
            send_again(source_world, Choice())
            assert sorted(ids(fetch(member, 3))) == sorted(sent)
        assert look(source_world) == []

    def test_one_that_is_given_up_again_is_a_dead_letter_again(self, source_world: SourceWorld) -> None:
        with source_world.member() as member:
            (event_id,) = give_up(source_world, member, 1)
            send_again(source_world, Choice())
            (again,) = fetch(member, 1)
            member.set_aside(again, "ValueError: still", 5)
            member.acknowledge([again])
        (letter,) = look(source_world)
        assert (letter.event_id, letter.reason, letter.attempts) == (event_id, "ValueError: still", "5")

    def test_a_letter_without_event_id_is_named_by_its_place(self, source_world: SourceWorld) -> None:
        with source_world.member() as member:
            source_world.under_test.send_foreign(source_world.source, b"\x00\xffhello")
            (foreign,) = fetch(member, 1)
            member.set_aside(foreign, "CannotDecode: no id", 1)
            member.acknowledge([foreign])
            (letter,) = look(source_world)
            assert letter.event_id == ""
            assert send_again(source_world, Choice(frozenset({letter.place}))) == Replayed(1, 1, [])
            (again,) = fetch(member, 1)
            assert (again.body, again.headers) == (b"\x00\xffhello", foreign.headers)

    def test_a_consumer_that_never_was_is_named(self, source_world: SourceWorld) -> None:
        with (
            pytest.raises(SourceMissing, match="nobody"),
            open_dead_letters(source_world.under_test.broker, "nobody", source_world.source),
        ):
            pass


def give_up(source_world: SourceWorld, member: Source, number: int) -> list[str]:
    """Send events and let the member set them aside; their ids."""
    sent = source_world.send(*[source_world.message(n) for n in range(number)])
    for n, incoming in enumerate(fetch(member, number)):
        member.set_aside(incoming, f"ValueError: no. {n}", 3)
        member.acknowledge([incoming])
    return sent


def look(source_world: SourceWorld, choice: Choice = Choice()) -> list[Letter]:
    """The dead letters of the choice."""
    broker = source_world.under_test.broker
    with open_dead_letters(broker, source_world.consumer, source_world.source) as box:
        return list(chosen(box, choice))


def send_again(source_world: SourceWorld, choice: Choice, *, dry_run: bool = False) -> Replayed:
    """Replay the letters of the choice."""
    broker = source_world.under_test.broker
    with open_dead_letters(broker, source_world.consumer, source_world.source) as box:
        return replay(box, choice, ORDER, dry_run=dry_run)
