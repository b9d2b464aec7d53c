"""What the lab speaks of: windows, strategies, cells, facts, verdicts, evidence. Values only; nothing here acts.

A *cell* is one window under one strategy of sending (or one way of consuming). It runs a number of events through real
processes, with a fault at the window's boundary in each, and is judged by what the servers hold afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NewType

EventId = NewType("EventId", str)


class Lane(StrEnum):
    """Who does something: the lanes of a timeline's picture, from top to bottom."""

    APPLICATION = "application"
    DATABASE = "database"
    RELAY = "relay"
    BROKER = "broker"
    CONSUMER = "consumer"


# What is run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """A place between two systems where a fault leaves them in disagreement.

    ``id`` is short and stable (``W1``, ``B2``); ``name`` a few words in English; ``boundary`` says in one sentence
    which two steps the fault is between. The report has both in its own languages, by ``id``.
    """

    id: str
    name: str
    boundary: str
    side: Literal["sending", "consuming"] = "sending"


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL the process that reaches ``point``; the next run of it is left alone."""

    point: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The process that reaches ``point`` gets an exception there, as its own code would raise one."""

    point: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP the process at ``point`` until its lease is over and another one has its work; then SIGCONT."""

    point: str


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """From ``point`` on the answers of ``server`` are lost on the way, not what it was sent. Later the link is cut."""

    point: str
    server: Literal["database", "broker"]


@dataclass(frozen=True, slots=True)
class CommitFails:
    """The second resource's commit fails at ``point`` (its server refuses or is out of reach)."""

    point: str


Fault = Kill | Fail | Freeze | LoseAnswer | CommitFails


class Outcome(StrEnum):
    """What a cell leaves behind at worst. A cell may show more than one; ``NOTHING`` stands alone."""

    GHOST = "ghost"  # told, though the business row does not exist
    LOSS = "loss"  # the business row exists, and nobody will ever be told
    DUPLICATE = "duplicate"  # told more than once, on the wire
    TWICE = "applied twice"  # a consumer applied one event more than once
    SKIPPED = "not applied"  # told, but a consumer never applied it, and never will
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Planned:
    """The cell runs: ``fault`` at the boundary, and what is expected of it, each outcome with ``why`` in one sentence.

    ``possible`` are outcomes that may show as well, depending on timing (a duplicate, mostly).
    """

    fault: Fault
    expected: frozenset[Outcome]
    why: str
    possible: frozenset[Outcome] = frozenset()


@dataclass(frozen=True, slots=True)
class Impossible:
    """This strategy has no such window; ``why`` in one sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """The cell exists, and was not run: shown as "expected, not run" with what is expected and the reason."""

    expected: frozenset[Outcome]
    why: str
    reason: str


Plan = Planned | Impossible | NotRun


# What was found -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotVisible:
    """A fact that could not be read, and why. Never a guess in its place."""

    why: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row as the database has it: its table, its columns as text, its moment by the database's clock (or None)."""

    table: str
    columns: Mapping[str, str | None]
    at: float | None = None  # seconds since 1970, UTC


@dataclass(frozen=True, slots=True)
class Record:
    """A message as the broker has it. ``place`` is ``topic[partition]@offset``, ``queue#position`` or the like."""

    event_id: EventId
    place: str
    headers: Mapping[str, str]
    at: float | None = None  # the broker's timestamp, seconds since 1970


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the servers hold of one event, after everything has come to rest.

    ``effects`` and ``marks`` are by consumer name; an effect row is what a handler wrote, one row each time it ran and
    committed. ``outbox`` is the event's row with its state, ``history`` its receipts and failures.
    """

    event_id: EventId
    business: Row | None
    records: tuple[Record, ...] | NotVisible
    outbox: Row | NotVisible | None = None
    history: tuple[Row, ...] = ()
    marks: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    effects: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the facts of one event say. ``None`` where a fact was not visible.

    ``applied`` is how often each consumer applied it.
    """

    event_id: EventId
    database: bool
    broker: bool | None
    outcomes: frozenset[Outcome]
    applied: Mapping[str, int] = field(default_factory=dict)
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened: when, by the lab's clock (seconds since 1970), in which lane, and what.

    ``source`` is where the knowledge is from: ``lab`` did or saw it; ``database``, ``broker``: their timestamps.
    """

    at: float
    lane: Lane
    what: str
    event_id: EventId | None = None
    source: Literal["lab", "database", "broker"] = "lab"
    kind: Literal["step", "fault", "end"] = "step"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process of the lab ended: its role, and ``signal 9``, ``status 0``, ``exception RuntimeError`` …"""

    role: str
    pid: int
    how: str
    at: float


# A cell that was run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CellKey:
    """Which cell: window, strategy (or way of consuming)."""

    window: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.window}-{self.strategy}"


@dataclass(frozen=True, slots=True)
class CellResult:
    """Everything about one cell. ``facts`` and ``verdicts`` are by event, in the order in which the events were placed.

    ``settings`` is the evidence that belongs to the cell: acks, isolation level, fault point, …; values are text,
    numbers, booleans, lists and :class:`NotVisible`. ``before`` and ``after`` are what the broker said of itself
    (replicas, in-sync replicas, queue state) and of the consumers' committed positions. ``command`` runs it again.
    """

    key: CellKey
    plan: Plan
    facts: tuple[Facts, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    timeline: tuple[Moment, ...] = ()
    exits: tuple[Exit, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    seconds: float = 0.0
    trouble: str | None = None  # the cell could not be run to its end, and why; then nothing is judged

    @property
    def ran(self) -> bool:
        """True when there is something to judge."""
        return isinstance(self.plan, Planned) and self.trouble is None

    def count(self, outcome: Outcome) -> int:
        """Of how many events this outcome was seen."""
        return sum(outcome in one.outcomes for one in self.verdicts)

    @property
    def surprises(self) -> frozenset[Outcome]:
        """Outcomes that were seen and not expected, and those that were expected and not seen."""
        if not isinstance(self.plan, Planned) or not self.ran:
            return frozenset()
        seen = frozenset().union(*(one.outcomes for one in self.verdicts)) - {Outcome.NOTHING}
        expected = self.plan.expected - {Outcome.NOTHING}
        return (seen - expected - self.plan.possible) | (expected - seen)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is the same for all cells of a run: versions, servers, options, clocks.

    ``clock_offsets``: server's clock minus the lab's, in seconds, by server; timelines are on the lab's clock.
    """

    started: float
    seed: int
    rounds: int
    versions: Mapping[str, str]
    servers: Mapping[str, Any]
    clock_offsets: Mapping[str, float | NotVisible] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the lab, finished or not: ``complete`` is False after Ctrl-C, and what was done is kept."""

    facts: RunFacts
    cells: tuple[CellResult, ...]
    complete: bool = True
