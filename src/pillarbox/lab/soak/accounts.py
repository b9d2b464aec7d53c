"""The accounting of a soak: every event by its id, in all places. Pure.

What counts is only what the servers hold when all has come to rest. The processes' own words are not asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["ghost", "loss", "not applied", "applied twice", "order", "unfinished", "tables"]


class Told(NamedTuple):
    """One record in the broker, in the order in which the broker keeps its key's records.

    ``number`` counts the events of ``key`` from 1, in the order of the transactions that wrote them.
    """

    event_id: str
    key: str
    number: int
    place: str


@dataclass(frozen=True, slots=True)
class Books:
    """What the servers hold. Ids as often as there are rows.

    ``business``: event id and key of each business row. ``outbox``: event id and row id of each event. ``waiting``:
    event id and state of what is neither sent nor settled. ``sent``: a receipt for each. ``applied``: the consumer's
    rows, ``marks`` its inbox.
    """

    business: Mapping[str, str]
    outbox: Mapping[str, int]
    waiting: Mapping[str, str]
    sent: Sequence[str]
    told: Sequence[Told]
    marks: Sequence[str]
    applied: Sequence[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one event, in a sentence."""

    kind: Kind
    event_id: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Accounts:
    """The balance: counts, and what is wrong. ``findings`` is empty when every promise was kept.

    ``duplicates`` are records beyond the first of each event, ``repeated`` how many events had any, ``most`` how often
    the most repeated one was sent. ``out_of_order`` counts breaks also where order is not promised and is no finding.
    """

    business: int
    events: int
    records: int
    duplicates: int
    repeated: int
    most: int
    marks: int
    applied: int
    keys: int
    out_of_order: int
    findings: tuple[Finding, ...] = field(default=())

    @property
    def balanced(self) -> bool:
        """True when every promise was kept."""
        return not self.findings

    def count(self, kind: Kind) -> int:
        """How many findings of a kind."""
        return sum(one.kind == kind for one in self.findings)


def balance(books: Books, *, ordered: bool = True) -> Accounts:
    """Compare event ids and orders.

    >>> told = [Told("a", "k", 1, "t[0]@0"), Told("a", "k", 1, "t[0]@1")]
    >>> found = balance(Books({"a": "k"}, {"a": 1}, {}, ["a"], told, ["a"], ["a"]))
    >>> found.balanced, found.duplicates
    (True, 1)
    """
    times = Counter(one.event_id for one in books.told)
    breaks = list(_order_breaks(books.told))
    findings = [*_ghosts(books), *_losses(books, times), *_applied(books, times), *_tables(books)]
    if ordered:
        findings += breaks
    return Accounts(
        business=len(books.business),
        events=len(books.outbox),
        records=len(books.told),
        duplicates=len(books.told) - len(times),
        repeated=sum(count > 1 for count in times.values()),
        most=max(times.values(), default=0),
        marks=len(books.marks),
        applied=len(books.applied),
        keys=len(set(books.business.values())),
        out_of_order=len(breaks),
        findings=tuple(findings),
    )


def _ghosts(books: Books) -> Iterator[Finding]:
    for event_id in sorted({one.event_id for one in books.told} - books.business.keys()):
        yield Finding("ghost", event_id, "The broker has it, and no business row was committed.")
    for event_id in sorted(set(books.applied) - books.business.keys()):
        yield Finding("ghost", event_id, "A consumer applied it, and no business row was committed.")


def _losses(books: Books, times: Mapping[str, int]) -> Iterator[Finding]:
    for event_id in books.business:
        # What waits in the outbox, or was set aside there, is not lost: that is another finding.
        if event_id not in times and event_id not in books.waiting:
            yield Finding("loss", event_id, "The business row is committed, the broker never got it, nothing waits.")


def _applied(books: Books, times: Mapping[str, int]) -> Iterator[Finding]:
    done = Counter(books.applied)
    for event_id in books.business:
        if event_id in times and event_id not in done:
            yield Finding("not applied", event_id, "The broker has it, and the consumer never applied it.")
    for event_id, count in done.items():
        if count > 1:
            yield Finding("applied twice", event_id, f"The consumer applied it {count} times.")


def _tables(books: Books) -> Iterator[Finding]:
    """Rows that must come in pairs."""
    yield from _differences(books.business.keys(), books.outbox.keys(), "a business row", "an outbox row")
    yield from _differences(set(books.applied), set(books.marks), "an effect", "an inbox mark")
    for event_id, state in books.waiting.items():
        yield Finding("unfinished", event_id, f"It is {state} in the outbox after everything came to rest.")
    receipts = Counter(books.sent)
    for event_id in books.outbox:
        if event_id not in books.waiting and receipts[event_id] != 1:
            yield Finding("tables", event_id, f"It does not wait, and has {receipts[event_id]} receipts.")


def _differences(these: Set[str], those: Set[str], one: str, other: str) -> Iterator[Finding]:
    for event_id in sorted(these - those):
        yield Finding("tables", event_id, f"There is {one} and not {other}.")
    for event_id in sorted(those - these):
        yield Finding("tables", event_id, f"There is {other} and not {one}.")


def _order_breaks(told: Sequence[Told]) -> Iterator[Finding]:
    """First occurrences of each key have to be 1, 2, 3, …; what is missing is a loss and not told twice."""
    highest: dict[str, int] = defaultdict(int)
    seen: set[str] = set()
    for one in told:
        if one.event_id in seen:
            continue
        seen.add(one.event_id)
        if one.number < highest[one.key]:
            yield Finding(
                "order",
                one.event_id,
                f"Number {one.number} of {one.key} came at {one.place}, after number {highest[one.key]}.",
            )
        highest[one.key] = max(highest[one.key], one.number)
