"""What every form of the report asks of a run: its grids, its worst events, what surprised. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from ..model import CellKey, CellResult, EventId, Facts, Impossible, Lane, Moment, Outcome, Planned, Run, Verdict
from ..windows import WINDOWS

WINDOW_ORDER: Final = tuple(one.id for one in WINDOWS)
CONSUMING_ROWS: Final = frozenset(one.id for one in WINDOWS if one.side == "consuming")
STRATEGY_ORDER: Final = ("S1", "S2", "S3", "S4", "S5-row", "S5-partition", "S6", "C0", "C1", "C2", "CA")
CONSUMING: Final = frozenset({"C0", "C1", "C2", "CA"})
"""The columns of the consuming grid."""

SEVERITY: Final = (
    Outcome.GHOST,
    Outcome.LOSS,
    Outcome.SKIPPED,
    Outcome.TWICE,
    Outcome.DUPLICATE,
    Outcome.NOTHING,
)
"""Worst first: what nobody can put right, what can only be found by counting, what an inbox makes harmless."""

HARMFUL: Final = frozenset({Outcome.GHOST, Outcome.LOSS, Outcome.SKIPPED, Outcome.TWICE})


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix: ``rows`` are windows, ``columns`` ways of sending or of consuming, ``cells`` what there is of them."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[CellKey, CellResult]

    def at(self, window: str, strategy: str) -> CellResult | None:
        """The cell, or None where the run has none (not asked for, or not reached)."""
        return self.cells.get(CellKey(window, strategy))


def grids(run: Run) -> tuple[Grid, Grid]:
    """The sending grid and the consuming grid; either may be without rows."""
    return _grid(run, consuming=False), _grid(run, consuming=True)


def _grid(run: Run, *, consuming: bool) -> Grid:
    cells = {cell.key: cell for cell in run.cells if _consuming(cell) is consuming and not _elsewhere(cell)}
    rows = in_order((key.window for key in cells), WINDOW_ORDER)
    return Grid(rows, in_order((key.strategy for key in cells), STRATEGY_ORDER), cells)


def _consuming(cell: CellResult) -> bool:
    return cell.key.strategy in CONSUMING


def _elsewhere(cell: CellResult) -> bool:
    """A row of the other grid, which is impossible in this one for no other reason: nothing to show."""
    return isinstance(cell.plan, Impossible) and (cell.key.window in CONSUMING_ROWS) is not _consuming(cell)


def in_order(ids: Iterable[str], order: tuple[str, ...]) -> tuple[str, ...]:
    """Each id once, in the order of ``order``; those that it lacks come behind, by name."""
    place = {one: at for at, one in enumerate(order)}
    return tuple(sorted(set(ids), key=lambda one: (place.get(one, len(order)), one)))


def in_reading_order(run: Run) -> tuple[CellResult, ...]:
    """All cells, row by row: sending first, then consuming."""
    return tuple(
        cell
        for grid in grids(run)
        for window in grid.rows
        for strategy in grid.columns
        if (cell := grid.at(window, strategy)) is not None
    )


def counts(cell: CellResult) -> tuple[tuple[Outcome, int], ...]:
    """What was seen, worst first, with the number of events; NOTHING only where there is nothing else."""
    seen = tuple((one, cell.count(one)) for one in SEVERITY if one is not Outcome.NOTHING and cell.count(one))
    return seen or ((Outcome.NOTHING, len(cell.verdicts)),)


def by_severity(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Worst first."""
    return tuple(sorted(outcomes, key=SEVERITY.index))


def unexpected(cell: CellResult) -> tuple[Outcome, ...]:
    """Outcomes that were seen though neither expected nor possible."""
    return by_severity(one for one in cell.surprises if cell.count(one))


def missing(cell: CellResult) -> tuple[Outcome, ...]:
    """Outcomes that were expected and not seen."""
    return by_severity(one for one in cell.surprises if not cell.count(one))


def surprising(run: Run) -> tuple[CellResult, ...]:
    """Cells in which reality was not what is expected."""
    return tuple(cell for cell in in_reading_order(run) if cell.surprises)


def troubled(run: Run) -> tuple[CellResult, ...]:
    """Cells that could not be run to their end."""
    return tuple(cell for cell in in_reading_order(run) if isinstance(cell.plan, Planned) and cell.trouble is not None)


def as_expected(run: Run) -> bool:
    """True when every cell that was run showed what is expected, and none was given up."""
    return not surprising(run) and not troubled(run)


def ran(run: Run) -> tuple[CellResult, ...]:
    """Cells with something to judge."""
    return tuple(cell for cell in in_reading_order(run) if cell.ran)


# Two questions, two answers ---------------------------------------------------------------------------------------


def agreement(cell: CellResult) -> Mapping[tuple[bool, bool | None], int]:
    """How many events the database has or has not, by whether the broker has them (None: not visible)."""
    return Counter((one.database, one.broker) for one in cell.verdicts)


def applied(cell: CellResult) -> Mapping[str, Mapping[int, int]]:
    """By consumer: how many events it applied 0, 1, 2, … times."""
    found: dict[str, Counter[int]] = {}
    for verdict in cell.verdicts:
        for consumer, times in verdict.applied.items():
            found.setdefault(consumer, Counter())[times] += 1
    return found


# Events -----------------------------------------------------------------------------------------------------------


def worst(outcomes: Iterable[Outcome]) -> int:
    """Its place in SEVERITY: the smaller, the worse."""
    return min((SEVERITY.index(one) for one in outcomes), default=len(SEVERITY))


def chosen(cell: CellResult, limit: int) -> tuple[Verdict, ...]:
    """At most ``limit`` events to show in full: the first of each set of outcomes, worst first."""
    kinds: dict[frozenset[Outcome], Verdict] = {}
    for verdict in cell.verdicts:
        kinds.setdefault(verdict.outcomes, verdict)
    return tuple(sorted(kinds.values(), key=lambda one: worst(one.outcomes))[:limit])


def facts_of(cell: CellResult, event_id: EventId) -> Facts | None:
    """The facts of one event."""
    return next((one for one in cell.facts if one.event_id == event_id), None)


def moments_of(cell: CellResult, event_id: EventId) -> tuple[Moment, ...]:
    """One event's moments in order, with those of no event (a kill, an end, a relay's batch) that concern it.

    Those of a lane concern it until the process ends that left the event's last trace there; where the event has left
    none, from its first to its last moment anywhere. Of equal ones in a row, the first says how many they are.
    """
    own = [one for one in cell.timeline if one.event_id == event_id]
    if not own:
        return ()
    first, last = min(one.at for one in own), max(one.at for one in own)
    until = {lane: _until(cell, lane, own, last) for lane in Lane}
    shared = [one for one in cell.timeline if one.event_id is None and first <= one.at <= until[one.lane]]
    return tuple(_counted(sorted([*own, *shared], key=lambda one: one.at)))


def _until(cell: CellResult, lane: Lane, own: list[Moment], last: float) -> float:
    here = [one.at for one in own if one.lane is lane]
    if not here:
        return last
    ends = [one.at for one in cell.timeline if one.lane is lane and one.kind == "end" and one.at >= max(here)]
    return min(ends, default=max(here))


def _counted(moments: list[Moment]) -> Iterator[Moment]:
    for (lane, what, event_id, kind), group in groupby(moments, key=lambda m: (m.lane, m.what, m.event_id, m.kind)):
        equal = list(group)
        repeated = len(equal) > 1 and event_id is None and kind == "step"
        if repeated:
            yield Moment(equal[0].at, lane, f"{what} ({len(equal)})", None, equal[0].source)
        else:
            yield from equal
