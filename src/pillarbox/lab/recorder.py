"""What happened in a cell: the points that its processes reached, what the lab did to them, and how they ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final

from .model import EventId, Exit, Facts, Lane, Moment, NotVisible, Row
from .points import MEANINGS
from .process import Process

LANES: Final = {"application": Lane.APPLICATION, "relay": Lane.RELAY, "consumer": Lane.CONSUMER}


class Recorder:
    """Safe between threads."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._processes: list[Process] = []
        self._lock = threading.Lock()

    def follow(self, process: Process) -> None:
        """Its points and its end belong to this cell."""
        with self._lock:
            self._processes.append(process)

    def struck(self, process: Process, what: str, event_id: EventId | None = None) -> None:
        """The lab has done this to the process."""
        self.note(LANES[process.role], f"{what} ({process.role} {process.pid})", event_id)

    def note(self, lane: Lane, what: str, event_id: EventId | None = None) -> None:
        """A fault of the lab's making."""
        with self._lock:
            self._moments.append(Moment(time.time(), lane, what, event_id, kind="fault"))

    @property
    def exits(self) -> tuple[Exit, ...]:
        """How the processes ended, in the order in which they did."""
        with self._lock:
            found = [process.exit for process in self._processes if process.exit is not None]
        return tuple(sorted(found, key=lambda one: one.at))

    def timeline(self, seen: Iterator[Moment]) -> tuple[Moment, ...]:
        """All of it in the order of time, with what was ``seen`` in the servers."""
        with self._lock:
            found = [*self._moments, *seen]
            for process in self._processes:
                found += _points(process)
        return tuple(sorted(found, key=lambda one: one.at))


def _points(process: Process) -> Iterator[Moment]:
    for reached in process.reached:
        meaning = MEANINGS.get(reached.point)
        if meaning is not None:
            yield Moment(reached.at, meaning.lane, meaning.words, reached.event_id)
    if process.exit is not None:
        how = f"{process.role} {process.pid} ends: {process.exit.how}"
        yield Moment(process.exit.at, LANES[process.role], how, kind="end")


def seen_in_servers(
    facts: tuple[Facts, ...], database_offset: float, broker_offset: float | NotVisible
) -> Iterator[Moment]:
    """What the servers' own timestamps tell, on the lab's clock. Without a known offset the broker's tell nothing."""
    for one in facts:
        yield from _row(one, one.business, Lane.DATABASE, "alarm row", database_offset)
        outbox = one.outbox if isinstance(one.outbox, Row) else None
        yield from _row(one, outbox, Lane.DATABASE, "outbox row", database_offset)
        for row in one.history:
            yield from _row(one, row, Lane.RELAY, row.table, database_offset)
        for consumer, rows in _both(one):
            for row in rows:
                yield from _row(one, row, Lane.CONSUMER, f"{row.table} of {consumer}", database_offset)
        if isinstance(one.records, NotVisible) or isinstance(broker_offset, NotVisible):
            continue
        for record in one.records:
            if record.at is not None:
                at = record.at - broker_offset
                yield Moment(at, Lane.BROKER, f"record {record.place}", one.event_id, source="broker")


def _both(one: Facts) -> Iterator[tuple[str, tuple[Row, ...]]]:
    yield from one.marks.items()
    yield from one.effects.items()


def _row(one: Facts, row: Row | None, lane: Lane, what: str, offset: float) -> Iterator[Moment]:
    if row is not None and row.at is not None:
        yield Moment(row.at - offset, lane, what, one.event_id, source="database")


def by_way(values: Mapping[str, tuple[Row, ...]], names: Mapping[str, str]) -> Mapping[str, tuple[Row, ...]]:
    """The same by the ways' ids, where the servers have the consumers' full names."""
    return {names.get(consumer, consumer): rows for consumer, rows in values.items()}
