"""The verdict is a function of the facts, and each outcome is what its definition says."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.lab.model import EventId, Facts, NotVisible, Outcome, Record, Row
from pillarbox.lab.verdict import Prospect, judge, prospect_of

EVENT = EventId("0198c0de-0000-7000-8000-000000000001")
WAITING = ("PENDING", "PROCESSING", "RETRY", "SCHEDULED", "HELD")
SET_ASIDE = ("DEAD", "BURIED")
FINISHED = ("SENT", "ORPHAN")
UNSEEN = NotVisible("the test hides it")


def _rows(table: str, count: int) -> tuple[Row, ...]:
    return tuple(Row(table, {"event_id": EVENT, "consumer": "bell"}) for _ in range(count))


def _facts(*, row: bool, copies: int | None, effects: dict[str, int], outbox: str | NotVisible | None = None) -> Facts:
    return Facts(
        EVENT,
        business=Row("lab_alarm", {"event_id": EVENT}) if row else None,
        records=UNSEEN if copies is None else tuple(Record(EVENT, f"alarms[0]@{n}", {}) for n in range(copies)),
        outbox=outbox if outbox is None or isinstance(outbox, NotVisible) else Row("outbox_status", {"status": outbox}),
        effects={name: _rows("lab_notification", times) for name, times in effects.items()},
    )


@pytest.mark.parametrize(
    ("row", "copies", "effects", "outbox", "expected"),
    [
        (True, 1, 1, None, {Outcome.NOTHING}),
        (True, 1, 1, "SENT", {Outcome.NOTHING}),
        (False, 0, 0, None, {Outcome.NOTHING}),  # rolled back, and nobody was told
        (False, 1, 1, None, {Outcome.GHOST}),
        (False, 1, 0, None, {Outcome.GHOST, Outcome.SKIPPED}),
        (False, 0, 1, None, {Outcome.GHOST}),  # the broker has forgotten it, the consumer has not
        (False, None, 1, None, {Outcome.GHOST}),
        (False, None, 0, None, {Outcome.NOTHING}),
        (True, 0, 0, None, {Outcome.LOSS}),
        (True, 0, 0, "SENT", {Outcome.LOSS}),  # a receipt for what the broker does not have
        (True, 0, 0, "ORPHAN", {Outcome.LOSS}),
        (True, 0, 0, UNSEEN, {Outcome.NOTHING}),
        (True, 0, 1, None, {Outcome.NOTHING}),  # told: an effect shows it
        (True, None, 0, None, {Outcome.NOTHING}),
        (True, 2, 1, None, {Outcome.DUPLICATE}),
        (True, 2, 2, None, {Outcome.DUPLICATE, Outcome.TWICE}),
        (True, 1, 2, None, {Outcome.TWICE}),
        (True, None, 3, None, {Outcome.TWICE}),
        (True, 1, 0, None, {Outcome.SKIPPED}),
        (True, 3, 0, None, {Outcome.DUPLICATE, Outcome.SKIPPED}),
        (False, 2, 2, None, {Outcome.GHOST, Outcome.DUPLICATE, Outcome.TWICE}),
    ],
)
def test_each_picture_has_its_name(
    row: bool, copies: int | None, effects: int, outbox: str | NotVisible | None, expected: set[Outcome]
) -> None:
    verdict = judge(_facts(row=row, copies=copies, effects={"bell": effects}, outbox=outbox), ["bell"])
    assert verdict.outcomes == expected
    assert verdict.database is row
    assert verdict.broker is (None if copies is None else copies > 0)
    assert verdict.applied == {"bell": effects}


@pytest.mark.parametrize("status", WAITING + SET_ASIDE)
def test_what_the_outbox_still_holds_is_not_lost_and_the_sentence_says_where_it_is(status: str) -> None:
    verdict = judge(_facts(row=True, copies=0, effects={"bell": 0}, outbox=status), ["bell"])
    assert verdict.outcomes == {Outcome.NOTHING}
    where = Prospect.WAITING if status in WAITING else Prospect.SET_ASIDE
    assert where.value in verdict.sentence


def test_every_status_of_the_outbox_has_its_prospect() -> None:
    assert {prospect_of(Row("outbox_status", {"status": one})) for one in WAITING} == {Prospect.WAITING}
    assert {prospect_of(Row("outbox_status", {"status": one})) for one in SET_ASIDE} == {Prospect.SET_ASIDE}
    assert {prospect_of(Row("outbox_status", {"status": one})) for one in FINISHED} == {Prospect.NONE}
    assert prospect_of(None) is Prospect.NONE
    assert prospect_of(UNSEEN) is Prospect.UNKNOWN


def test_consumers_that_were_not_asked_about_play_no_part() -> None:
    facts = _facts(row=True, copies=1, effects={"bell": 1, "other": 2})
    assert judge(facts, ["bell"]).outcomes == {Outcome.NOTHING}
    assert judge(facts, ["bell", "other"]).outcomes == {Outcome.TWICE}
    assert judge(facts, []).outcomes == {Outcome.NOTHING}


def test_a_fact_that_was_not_visible_is_told_as_that() -> None:
    verdict = judge(_facts(row=True, copies=None, effects={"bell": 0}), ["bell"])
    assert "not visible (the test hides it)" in verdict.sentence
    assert verdict.broker is None


def test_the_sentence_is_plain_english() -> None:
    ghost = judge(_facts(row=False, copies=2, effects={"bell": 2}), ["bell"])
    assert ghost.sentence == (
        "The database has no row; the broker holds 2 records (alarms[0]@0, alarms[0]@1); bell applied it twice: "
        "ghost, duplicate, applied twice."
    )
    lost = judge(_facts(row=True, copies=0, effects={"bell": 0}), ["bell"])
    assert lost.sentence == (
        "The database has the row; the broker holds nothing; nothing in the outbox will tell of it: loss."
    )
    good = judge(_facts(row=True, copies=1, effects={"bell": 1}), ["bell"])
    assert good.sentence == (
        "The database has the row; the broker holds one record (alarms[0]@0); bell applied it once."
    )


facts = st.builds(
    _facts,
    row=st.booleans(),
    copies=st.none() | st.integers(0, 3),
    effects=st.dictionaries(st.sampled_from(["bell", "log"]), st.integers(0, 3)),
    outbox=st.none() | st.just(UNSEEN) | st.sampled_from(WAITING + SET_ASIDE + FINISHED),
)
asked = st.lists(st.sampled_from(["bell", "log"]), unique=True)


@given(facts, asked)
def test_each_outcome_is_its_definition(seen: Facts, consumers: list[str]) -> None:
    verdict = judge(seen, consumers)
    times = [len(seen.effects.get(one, ())) for one in consumers]
    copies = None if isinstance(seen.records, NotVisible) else len(seen.records)
    told = bool(copies) or any(times)
    still_there = isinstance(seen.outbox, NotVisible) or (
        seen.outbox is not None and seen.outbox.columns["status"] in WAITING + SET_ASIDE
    )
    assert (Outcome.GHOST in verdict.outcomes) == (seen.business is None and told)
    assert (Outcome.LOSS in verdict.outcomes) == (
        seen.business is not None and copies == 0 and not told and not still_there
    )
    assert (Outcome.DUPLICATE in verdict.outcomes) == (copies is not None and copies >= 2)
    assert (Outcome.TWICE in verdict.outcomes) == any(one >= 2 for one in times)
    assert (Outcome.SKIPPED in verdict.outcomes) == (bool(copies) and 0 in times)
    assert (Outcome.NOTHING in verdict.outcomes) == (len(verdict.outcomes & (set(Outcome) - {Outcome.NOTHING})) == 0)


@given(facts, asked)
def test_a_ghost_is_never_a_loss_and_nothing_stands_alone(seen: Facts, consumers: list[str]) -> None:
    outcomes = judge(seen, consumers).outcomes
    assert not {Outcome.GHOST, Outcome.LOSS} <= outcomes
    assert outcomes
    assert Outcome.NOTHING not in outcomes or len(outcomes) == 1


@given(facts, asked)
def test_hiding_the_records_can_only_take_outcomes_away(seen: Facts, consumers: list[str]) -> None:
    hidden = Facts(seen.event_id, seen.business, UNSEEN, seen.outbox, (), {}, seen.effects)
    assert judge(hidden, consumers).outcomes - {Outcome.NOTHING} <= judge(seen, consumers).outcomes


def test_every_combination_is_judged_and_named_in_its_sentence() -> None:
    combinations = product((True, False), (None, 0, 1, 2), (0, 1, 2), (None, UNSEEN, *WAITING, *SET_ASIDE, *FINISHED))
    for row, copies, times, outbox in combinations:
        verdict = judge(_facts(row=row, copies=copies, effects={"bell": times}, outbox=outbox), ["bell"])
        for outcome in verdict.outcomes - {Outcome.NOTHING}:
            assert str(outcome) in verdict.sentence.rsplit(":", 1)[-1]
        assert verdict.sentence.endswith(".")
