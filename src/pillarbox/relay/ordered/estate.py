"""What a relay owns: its partitions, and in each the holds, whose streams wait."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from ...policy.lanes import lane_of
from ...ports import EVERY_LANE, Delivery, Hold, Partition, Progress, Stream, Tenure, WorkKey


class Streams:
    """The stream of a delivery. Destinations are few, so their hashes are kept."""

    def __init__(self) -> None:
        self._targets: dict[str, int] = {}

    def of(self, delivery: Delivery) -> Stream:
        """What it must stay in order with."""
        return Stream(delivery.key.partition_no, delivery.lane, self.target(delivery.message.destination))

    def target(self, destination: str) -> int:
        """The destination's hash."""
        found = self._targets.get(destination)
        if found is None:
            if len(self._targets) > 10_000:  # destinations made up per event would fill the memory
                self._targets.clear()
            found = self._targets[destination] = lane_of(destination)
        return found


class Waiting(NamedTuple):
    """A hold, and when something is to be done about it, in seconds of the relay's monotonic clock (None: never)."""

    hold: Hold
    due: float | None


class Holds:
    """The holds of one partition, and which of them is due next.

    There may be a million dead keys: of their holds only the head's id is kept, about 100 bytes each. Destination and
    reason are in the table, and no decision needs them.
    """

    def __init__(self, holds: Iterable[Hold], now: float) -> None:
        self._by_stream: dict[Stream, Waiting] = {}  # all but the dead ones
        self._dead: dict[tuple[int, int], dict[int, int]] = {}  # partition and target: lane: row id of the head
        self._agenda: list[tuple[float, Stream]] = []
        for hold in holds:
            self.put(hold, now)

    def __len__(self) -> int:
        return len(self._by_stream) + sum(map(len, list(self._dead.values())))

    def __bool__(self) -> bool:
        return bool(self._by_stream) or any(self._dead.values())

    def __iter__(self) -> Iterator[Waiting]:
        yield from self._by_stream.values()
        for (number, target), heads in self._dead.items():
            for lane, head_id in heads.items():
                yield _dead(Stream(number, lane, target), head_id)

    @property
    def coming(self) -> Iterator[Waiting]:
        """Those that come due by themselves, or drain."""
        return (one for one in self._by_stream.values() if one.due is not None)

    def get(self, stream: Stream) -> Waiting | None:
        """The hold on exactly this stream."""
        found = self._by_stream.get(stream)
        if found is not None or not self._dead:
            return found
        number, lane, target = stream
        head_id = self._dead.get((number, target), {}).get(lane)
        return None if head_id is None else _dead(stream, head_id)

    def over(self, stream: Stream) -> Hold | None:
        """The hold that makes an event of this stream wait: on its destination, or on itself."""
        waiting = self.get(stream) or self.get(stream._replace(lane=EVERY_LANE))
        return None if waiting is None else waiting.hold

    def lanes(self, limit: int) -> list[int]:
        """Up to ``limit`` lanes with a hold of their own."""
        lanes = chain((stream.lane for stream in self._by_stream), *self._dead.values())
        return list(islice((lane for lane in lanes if lane != EVERY_LANE), limit))

    def put(self, hold: Hold, now: float) -> None:
        """Add or replace."""
        self.drop(hold.stream)
        if hold.mode == "dead":
            number, lane, target = hold.stream
            self._dead.setdefault((number, target), {})[lane] = hold.head_id
            return
        due = 0.0 if hold.mode == "drain" else None if hold.due_in is None else now + hold.due_in
        self._by_stream[hold.stream] = Waiting(hold._replace(destination="", reason=""), due)
        if due is not None:
            heapq.heappush(self._agenda, (due, hold.stream))
            if len(self._agenda) > 2 * len(self._by_stream) + 64:
                self._agenda = [(w.due, s) for s, w in self._by_stream.items() if w.due is not None]
                heapq.heapify(self._agenda)

    def drop(self, stream: Stream) -> None:
        """It is free."""
        number, lane, target = stream
        self._by_stream.pop(stream, None)
        if self._dead:
            self._dead.get((number, target), {}).pop(lane, None)

    def due(self, now: float, limit: int) -> list[Hold]:
        """Up to ``limit`` holds to work on now; a stream whose destination waits is none of them."""
        found: list[Hold] = []
        later: list[tuple[float, Stream]] = []
        seen: set[Stream] = set()  # a hold that was put again with the same due is on the agenda twice
        while self._agenda and self._agenda[0][0] <= now and len(found) < limit:
            due, stream = heapq.heappop(self._agenda)
            waiting = self._by_stream.get(stream)
            if waiting is None or waiting.due != due or stream in seen:
                continue
            seen.add(stream)
            above = self.get(stream._replace(lane=EVERY_LANE)) if stream.lane != EVERY_LANE else None
            if above is not None and above.hold.mode != "drain":
                again = max(above.due or 0.0, now + 1.0)
                self._by_stream[stream] = waiting._replace(due=again)
                later.append((again, stream))
                continue
            later.append((due, stream))  # it stays on the agenda until it is put anew or dropped
            found.append(waiting.hold)
        for entry in later:
            heapq.heappush(self._agenda, entry)
        return found


def _dead(stream: Stream, head_id: int) -> Waiting:
    return Waiting(Hold(stream, "dead", head_id, None, "", ""), None)


@dataclass(slots=True)
class Owned:
    """One partition of ours. At most one round of it is under way (``busy``)."""

    tenure: Tenure
    low_id: int
    careful_to: int
    crashes: int
    holds: Holds
    handed_to: int = 0
    settled_to: int = 0  # everything that was ever read up to here has left the queue
    passed: int = 0  # no transaction can commit anything at or below it any more; not yet read again
    busy: bool = False
    drains: int = 0  # rounds of parked events since fresh ones were looked for
    leaving: bool = False
    charged: dict[WorkKey, int] = field(default_factory=dict)  # claims of events that this relay sends alone
    resting: bool = False  # all that is left of the care after a crash waits for its hold to come due

    @property
    def number(self) -> int:
        """Its partition number."""
        return self.tenure.partition_no

    @property
    def is_careful(self) -> bool:
        """True after a crash, until all that was on its way then is through, or waits."""
        return self.crashes > 0 and not self.resting

    @property
    def is_free(self) -> bool:
        """True when a round may be taken from it."""
        return not (self.busy or self.leaving)

    def progress(self, *, handed_to: int | None = None) -> Progress:
        """Its state as the database is to have it."""
        to = self.handed_to if handed_to is None else handed_to
        return Progress(self.tenure, self.low_id, to, self.careful_to, self.crashes)


@dataclass(slots=True)
class Estate:
    """All partitions of ours, by number."""

    by_number: dict[int, Owned] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_number)

    def __iter__(self) -> Iterator[Owned]:
        return iter(self.by_number.values())

    def tenures(self) -> list[Tenure]:
        """What the keeper has to renew."""
        return [one.tenure for one in self]

    def add(self, partition: Partition, now: float) -> Owned:
        """A partition that was just acquired."""
        owned = Owned(
            partition.tenure,
            partition.low_id,
            partition.careful_to if partition.crashes else 0,
            partition.crashes if partition.careful_to else 0,
            Holds(partition.holds, now),
            settled_to=partition.low_id,
            passed=partition.low_id,
        )
        self.by_number[owned.number] = owned
        return owned

    def lose(self, tenure: Tenure) -> Owned | None:
        """Forget a partition, if it is still held under this tenure."""
        owned = self.by_number.get(tenure.partition_no)
        if owned is None or owned.tenure != tenure:
            return None
        return self.by_number.pop(tenure.partition_no)

    def free(self, wanted: Callable[[Owned], bool]) -> list[Owned]:
        """Partitions from which a round may be taken, by number."""
        return sorted((one for one in self if one.is_free and wanted(one)), key=lambda one: one.number)
