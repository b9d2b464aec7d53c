"""What the facts of one event say. Pure: no server is asked, and no log of the code under test is believed.

Facts are read at rest, when every process that is to go on has come to an end of its work. So an event that still
waits in an outbox is not lost: it is told as soon as a relay runs. One that was set aside (DEAD, BURIED) is not lost
either: it stands in a list that people look at, and can be replayed. Lost is what nobody will ever be told of.

============  ==================================================================================================
ghost         no business row, and a record in the broker or an effect with a consumer
loss          a business row, no record, no effect, and nothing in the outbox that could still lead to one
duplicate     more than one record of the event
applied twice a consumer has more than one effect of it
not applied   a record, and a consumer without an effect
nothing       none of these
============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from .model import Facts, NotVisible, Outcome, Row, Verdict


class Prospect(Enum):
    """What the outbox still holds for an event that was not told."""

    NONE = "nothing in the outbox will tell of it"
    WAITING = "it waits in the outbox and is told as soon as a relay runs"
    SET_ASIDE = "the outbox has set it aside, where people see it and can replay it"
    UNKNOWN = "whether the outbox still holds it is not visible"


_WAITING: Final = frozenset({"PENDING", "PROCESSING", "RETRY", "SCHEDULED", "HELD"})
_SET_ASIDE: Final = frozenset({"DEAD", "BURIED"})


def judge(facts: Facts, consumers: Sequence[str]) -> Verdict:
    """The verdict on one event. ``consumers`` are those that were to apply it; others play no part.

    >>> from pillarbox.lab.model import EventId, Record, Row
    >>> lost = judge(Facts(EventId("e"), Row("lab_alarm", {}), records=()), [])
    >>> lost.database, lost.broker, sorted(lost.outcomes)
    (True, False, [<Outcome.LOSS: 'loss'>])
    """
    row = facts.business is not None
    copies = None if isinstance(facts.records, NotVisible) else len(facts.records)
    applied = {consumer: len(facts.effects.get(consumer, ())) for consumer in consumers}
    prospect = prospect_of(facts.outbox)
    outcomes = frozenset(_outcomes(row, copies, applied, prospect)) or frozenset({Outcome.NOTHING})
    return Verdict(
        facts.event_id,
        database=row,
        broker=None if copies is None else copies > 0,
        outcomes=outcomes,
        applied=applied,
        sentence=_sentence(facts, copies, applied, prospect, outcomes),
    )


def prospect_of(outbox: Row | NotVisible | None) -> Prospect:
    """What the event's row in the outbox says of its future. SENT and ORPHAN lead to nothing any more."""
    if isinstance(outbox, NotVisible):
        return Prospect.UNKNOWN
    status = None if outbox is None else outbox.columns.get("status")
    if status in _WAITING:
        return Prospect.WAITING
    return Prospect.SET_ASIDE if status in _SET_ASIDE else Prospect.NONE


def _outcomes(row: bool, copies: int | None, applied: Mapping[str, int], prospect: Prospect) -> Iterator[Outcome]:
    done = any(applied.values())
    if not row and (copies or done):
        yield Outcome.GHOST
    if row and copies == 0 and not done and prospect is Prospect.NONE:
        yield Outcome.LOSS
    if copies is not None and copies > 1:
        yield Outcome.DUPLICATE
    if any(times > 1 for times in applied.values()):
        yield Outcome.TWICE
    if copies and not all(applied.values()):
        yield Outcome.SKIPPED


# In words -----------------------------------------------------------------------------------------------------------


def _sentence(
    facts: Facts, copies: int | None, applied: Mapping[str, int], prospect: Prospect, outcomes: frozenset[Outcome]
) -> str:
    clauses = [
        "The database has the row" if facts.business is not None else "The database has no row",
        _told(facts, copies),
    ]
    if facts.business is not None and copies == 0 and not any(applied.values()):
        clauses.append(prospect.value)
    if copies is None or copies or any(applied.values()):
        clauses += [_applied(consumer, times) for consumer, times in applied.items()]
    said = "; ".join(clauses)
    named = ", ".join(str(one) for one in Outcome if one in outcomes and one is not Outcome.NOTHING)
    return f"{said}: {named}." if named else f"{said}."


def _told(facts: Facts, copies: int | None) -> str:
    if isinstance(facts.records, NotVisible):
        return f"what the broker holds is not visible ({facts.records.why})"
    if not copies:
        return "the broker holds nothing"
    places = ", ".join(record.place for record in facts.records)
    return f"the broker holds {'one record' if copies == 1 else f'{copies} records'} ({places})"


def _applied(consumer: str, times: int) -> str:
    count = {0: "has not applied it", 1: "applied it once", 2: "applied it twice"}
    return f"{consumer} {count.get(times, f'applied it {times} times')}"
