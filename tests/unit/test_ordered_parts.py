"""The pure decisions of the partition lease."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import (
    EVERY_LANE,
    Confirmed,
    Delivery,
    Fleet,
    Hold,
    Outcome,
    Partition,
    PartitionState,
    Reading,
    Rejected,
    Stream,
    Tenure,
    Unavailable,
    Unknown,
    Withheld,
    WorkKey,
)
from pillarbox.relay.ordered import careful
from pillarbox.relay.ordered.estate import Estate, Holds, Owned, Streams
from pillarbox.relay.ordered.lowmark import LowMarks
from pillarbox.relay.ordered.plan import Decided, Rules, decide
from pillarbox.relay.ordered.rounds import NeedsPayload, Round, fresh
from pillarbox.relay.ordered.shares import next_look, quota, share

from .deliveries import MESSAGE

# Shares -----------------------------------------------------------------------------------------------------------


@given(st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=20), st.integers(1, 64))
def test_quotas_of_all_relays_add_up_and_differ_by_one_at_most(relays: set[str], partitions: int) -> None:
    quotas = [quota(relays, one, partitions) for one in relays]
    assert sum(quotas) == partitions
    assert max(quotas) - min(quotas) <= 1


def fleet(relays: list[str], owners: list[str], free: set[int]) -> Fleet:
    return Fleet(relays, [PartitionState(n, o, n in free, 0.0 if n in free else 30.0) for n, o in enumerate(owners)])


def test_a_relay_takes_what_is_free_up_to_its_quota_and_gives_up_the_rest() -> None:
    assert share(fleet(["a", "b"], [""] * 4, {0, 1, 2, 3}), "b", []).take == [2, 3]
    assert share(fleet(["a", "b"], ["a"] * 4, set()), "a", [0, 1, 2, 3]) == ([], 2)
    assert share(fleet(["a"], ["a", "a", "x", ""], {3}), "a", [0, 1]).take == [3]


def test_the_next_look_is_when_the_first_foreign_lease_ends() -> None:
    assert next_look(fleet(["a"], ["a", "b"], set()), [0], 60.0) == pytest.approx(30.05)
    assert next_look(fleet(["a"], ["a", "b"], set()), [0], 1.0) == 1.0


# Low marks --------------------------------------------------------------------------------------------------------


def test_a_mark_passes_only_when_all_who_wrote_at_its_time_have_ended() -> None:
    writing = frozenset({"1", "2"})
    marks = LowMarks(lambda: writing)
    marks.mark({0: 100}, 0.0)
    assert not marks.passed(0.1)  # MySQL's list may be a tenth of a second old
    assert not marks.passed(0.3)
    writing = frozenset({"2", "3"})
    assert not marks.passed(1.0)
    writing = frozenset({"3", "4"})
    assert marks.passed(2.0) == {0: 100}
    assert not marks.waiting


def test_where_writers_cannot_be_seen_a_mark_passes_by_age() -> None:
    marks = LowMarks(lambda: None, 900.0)
    marks.mark({0: 7}, 0.0)
    assert not marks.passed(1.0)
    assert not marks.passed(899.0)
    assert marks.passed(900.0) == {0: 7}


# Reading ----------------------------------------------------------------------------------------------------------


def delivery(
    row: int, lane: int = 1, *, partition: int = 0, destination: str = "orders", attempts: int = 0
) -> Delivery:
    message = MESSAGE._replace(destination=destination, key=f"key-{lane}")
    return Delivery(WorkKey(partition, row, 0), lane, attempts, 0, message)


def owned(number: int = 0, holds: tuple[Hold, ...] = (), passed: int = 0) -> Owned:
    one = Estate().add(Partition(Tenure(number, 1, 1), 0, 0, 0, holds), 0.0)
    one.passed = passed
    return one


STREAMS = Streams()


def hold_on(lane: int, destination: str = "orders", mode: str = "dead") -> Hold:
    return Hold(Stream(0, lane, STREAMS.target(destination)), mode, 1, None, destination, "")  # type: ignore[arg-type]


def test_what_waits_behind_a_hold_is_set_aside_and_the_rest_goes() -> None:
    one = owned(holds=(hold_on(1), hold_on(EVERY_LANE, "sick")))
    rows = [delivery(1), delivery(2, 2), delivery(3, 2, destination="sick"), delivery(4, 3)]
    found = fresh(Reading(rows, [], False), {0: one}, STREAMS, frozenset())
    assert [d.key.id for d in found.send] == [2, 4]
    assert [(a.key.id, a.state) for a in found.aside] == [(1, "HELD"), (3, "HELD")]


def test_a_held_lane_that_is_free_for_another_destination_is_read_again_with_its_payload() -> None:
    one = owned(holds=(hold_on(1),))
    reading = Reading([delivery(1, destination="other")], [], False)
    with pytest.raises(NeedsPayload):
        fresh(reading, {0: one}, STREAMS, frozenset({1}))


def test_a_reading_that_was_cut_off_says_how_far_each_partition_was_read() -> None:
    read = {0: owned(0, passed=90), 1: owned(1, passed=90), 2: owned(2, passed=90)}
    rows = [delivery(5), delivery(30, partition=1)]
    assert fresh(Reading(rows, [], True), read, STREAMS, frozenset()).read_to == {0: 90, 1: 29}
    assert fresh(Reading(rows, [], False), read, STREAMS, frozenset()).read_to == {0: 90, 1: 90, 2: 90}


# Holds ------------------------------------------------------------------------------------------------------------


def test_holds_come_due_in_order_and_wait_for_their_destination() -> None:
    every = Stream(0, EVERY_LANE, STREAMS.target("orders"))
    holds = Holds([hold_on(n)._replace(mode="backoff", due_in=float(n)) for n in (3, 1, 2)], 0.0)
    assert [hold.stream.lane for hold in holds.due(2.5, 10)] == [1, 2]
    assert [hold.stream.lane for hold in holds.due(2.5, 1)] == [1]
    holds.put(Hold(every, "away", 1, 60.0, "orders", ""), 2.5)
    assert holds.due(5.0, 10) == []
    holds.drop(every)
    assert {hold.stream.lane for hold in holds.due(100.0, 10)} == {1, 2, 3}


# Outcomes ---------------------------------------------------------------------------------------------------------

RULES = Rules(RetryPolicy(max_attempts=3, jitter=False), "hold", lambda: 0.5, lambda _: 2.0)


def decided(rows: list[Delivery], outcomes: list[Outcome], rules: Rules = RULES) -> Decided:
    return decide(Round({0: owned()}, rows), outcomes, STREAMS, rules)


def test_behind_a_failed_event_its_stream_is_parked_and_others_are_sent() -> None:
    rows = [delivery(1), delivery(2), delivery(3, 2)]
    found = decided(rows, [Rejected("busy", False), Withheld("behind 1"), Confirmed(0, 7)])
    assert [(a.key.id, a.state, a.attempts) for a in found.aside] == [(1, "RETRY", 1), (2, "HELD", 0)]
    assert [hold.mode for hold in found.holds.values()] == ["backoff"]
    assert [s.key.id for s in found.sent] == [3]
    assert not found.staying


def test_in_an_outage_nothing_is_written_and_the_lowest_stays_known() -> None:
    rows = [delivery(4), delivery(5), delivery(6, 2)]
    away = Unavailable("down")
    found = decided(rows, [Confirmed(), away, away])
    assert (found.staying, found.outage, found.aside, len(found.sent)) == ({0: 5}, "down", [], 1)


def test_a_destination_in_trouble_is_held_whole_unless_others_of_it_got_through() -> None:
    sick = Unavailable("no leader", broker_answers=True)
    found = decided([delivery(1), delivery(2, 2)], [sick, sick])
    assert [stream.lane for stream in found.holds] == [EVERY_LANE]
    assert [(a.key.id, a.state) for a in found.aside] == [(1, "HELD"), (2, "HELD")]
    found = decided([delivery(1), delivery(2, 2)], [sick, Confirmed()])
    assert [(stream.lane, hold.mode) for stream, hold in found.holds.items()] == [(1, "away")]


@pytest.mark.parametrize("first", [Withheld("no time"), Unavailable("down")])
@pytest.mark.parametrize("second", [Rejected("no", True), Rejected("busy", False), Unknown("late", True)])
def test_an_earlier_event_that_is_not_confirmed_makes_a_failed_one_wait(first: Outcome, second: Outcome) -> None:
    found = decided([delivery(1), delivery(2)], [first, second])
    assert (found.aside, found.holds, found.staying) == ([], {}, {0: 1})


def test_a_destination_in_trouble_parks_what_an_outage_stopped_together_with_what_follows_it() -> None:
    sick = Unavailable("no leader", broker_answers=True)
    found = decided([delivery(1), delivery(2, 2), delivery(3)], [Unavailable("down"), sick, Withheld("behind 1")])
    assert [(a.key.id, a.state) for a in found.aside] == [(2, "HELD"), (1, "HELD"), (3, "HELD")]
    assert not found.staying


def test_attempts_run_out_and_the_key_waits_for_a_person_or_goes_on_by_choice() -> None:
    last = [delivery(1, attempts=2), delivery(2)]
    outcomes: list[Outcome] = [Unknown("late", True), Withheld("")]
    assert [(a.state, a.attempts) for a in decided(last, outcomes).aside] == [("DEAD", 3), ("HELD", 0)]
    found = decided(last, outcomes, RULES._replace(on_failure="skip"))
    assert ([a.state for a in found.aside], found.skipped, found.staying) == (["DEAD"], 1, {0: 2})
    assert not found.holds


def test_an_event_without_a_key_fails_without_a_hold_since_nothing_can_follow_it() -> None:
    rows = [delivery(1), delivery(2, 2)]
    rows = [one._replace(message=one.message._replace(key=None)) for one in rows]
    found = decided(rows, [Rejected("busy", False), Rejected("no", True)])
    assert [(a.key.id, a.state) for a in found.aside] == [(1, "RETRY"), (2, "DEAD")]
    assert (found.holds, found.skipped) == ({}, 0)
    round_ = Round({0: owned()}, rows[1:])
    round_.give_up(rows[1], STREAMS.of(rows[1]), "stops the relay", hold=True)
    assert (round_.holds, [one.state for one in round_.aside]) == ([], ["DEAD"])


@pytest.mark.parametrize("policy", ["hold", "skip"])
@pytest.mark.parametrize("key", ["k", None])
def test_what_fails_while_its_hold_drains_waits_for_its_time_under_a_hold_of_its_own(
    policy: Literal["hold", "skip"], key: str | None
) -> None:
    stream = Stream(0, 1, STREAMS.target("orders"))
    row = delivery(1)
    row = row._replace(message=row.message._replace(key=key))
    round_ = Round({0: owned()}, [row], [], {}, {stream._replace(lane=EVERY_LANE): False})
    found = decide(round_, [Rejected("busy", False)], STREAMS, RULES._replace(on_failure=policy))
    assert [(hold.mode, hold.due_in) for hold in found.holds.values()] == [("backoff", found.aside[0].due_in)]
    assert list(found.holds) == [stream]


def test_a_drain_frees_its_stream_only_when_nothing_is_left() -> None:
    stream = Stream(0, 1, STREAMS.target("orders"))
    rows = [delivery(1), delivery(2)]

    def drain(more: bool, outcomes: list[Outcome]) -> Decided:
        return decide(Round({0: owned()}, rows, [], {}, {stream: more}), outcomes, STREAMS, RULES)

    assert drain(False, [Confirmed(), Confirmed()]).freed == [stream]
    assert drain(True, [Confirmed(), Confirmed()]).freed == []
    assert drain(False, [Confirmed(), Unavailable("down")]).freed == []
    failed = drain(False, [Confirmed(), Rejected("no", True)])
    assert (failed.freed, [hold.mode for hold in failed.holds.values()]) == ([], ["dead"])


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["ok", "no", "busy", "away", "down", "lost"])), max_size=12)
)
def test_every_event_is_settled_or_stays_and_nothing_confirmed_is_lost(plan: list[tuple[int, str]]) -> None:
    answers: dict[str, Outcome] = {
        "ok": Confirmed(0, 1), "no": Rejected("no", True), "busy": Rejected("busy", False),
        "away": Unavailable("", True), "down": Unavailable(""), "lost": Unknown("", True),
    }  # fmt: skip
    rows = [delivery(row, lane) for row, (lane, _) in enumerate(plan, start=1)]
    stopped: set[int] = set()
    outcomes: list[Outcome] = []
    for lane, name in plan:
        outcomes.append(Withheld("") if lane in stopped else answers[name])
        if name != "ok":
            stopped.add(lane)
    found = decided(rows, outcomes)
    settled = {one.key.id for one in found.sent} | {one.key.id for one in found.aside}
    assert {row.key.id for row, outcome in zip(rows, outcomes, strict=True) if outcome == answers["ok"]} == {
        one.key.id for one in found.sent
    }
    left = {row.key.id for row in rows} - settled
    assert min(left, default=None) == found.staying.get(0)
    for row in rows:  # what waits has a reason to: a hold over it, or an outage
        if any(one.key == row.key and one.state == "HELD" for one in found.aside):
            assert any(s.lane in (row.lane, EVERY_LANE) for s in found.holds)


def test_groups_shrink_with_each_crash() -> None:
    assert [careful.group_size(n, 2000) for n in range(7)] == [2000, 256, 64, 16, 4, 1, 1]
    assert [careful.group_size(n, 10) for n in (0, 1, 4)] == [10, 10, 4]
