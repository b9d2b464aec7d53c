"""A round: what is read, sent and settled together. At most one of each partition is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...ports import Aside, Delivery, Hold, OrphanWork, Reading, Stream
from .estate import Owned, Streams


@dataclass(slots=True)
class Round:
    """``send`` in the order of reading; ``aside`` is what leaves the queue without being sent.

    A fresh round comes from the ready table: ``read_to`` says up to which id each of its partitions was read, with
    nothing left out (the partition's ``passed`` mark at that time where everything was read). A drain comes from the
    parked table: ``draining`` has its holds, and whether more is parked under each than was read.
    """

    owned: Mapping[int, Owned]
    send: Sequence[Delivery]
    aside: list[Aside] = field(default_factory=list)
    read_to: Mapping[int, int] = field(default_factory=dict)
    draining: Mapping[Stream, bool] | None = None
    bytes: int = 0
    holds: list[Hold] = field(default_factory=list)

    def give_up(self, delivery: Delivery, stream: Stream, reason: str, *, hold: bool) -> None:
        """Do not send it after all: it is dead, and with ``hold`` what follows it in its key waits."""
        self.send = [one for one in self.send if one.key != delivery.key]
        self.aside.append(Aside(delivery.key, stream, "DEAD", None, delivery.attempts, reason))
        if hold and delivery.message.key is not None:
            destination = delivery.message.destination
            self.holds.append(Hold(stream, "dead", delivery.key.id, None, destination, reason))

    def add(self, other: Round) -> None:
        """Take over all that is in ``other``, a fresh round of other partitions."""
        self.owned = {**self.owned, **other.owned}
        self.send = [*self.send, *other.send]
        self.aside += other.aside
        self.read_to = {**self.read_to, **other.read_to}
        self.bytes += other.bytes

    def drop(self, number: int) -> None:
        """Forget all that concerns this partition: it is another relay's."""
        self.owned = {n: one for n, one in self.owned.items() if n != number}
        self.send = [one for one in self.send if one.key.partition_no != number]
        self.aside = [one for one in self.aside if one.key.partition_no != number]
        self.holds = [one for one in self.holds if one.stream.partition_no != number]
        if self.draining is not None:
            self.draining = {stream: more for stream, more in self.draining.items() if stream.partition_no != number}

    @property
    def given_up(self) -> set[Stream]:
        """Streams whose head it gave up: they are held anew, and neither free nor to be drained."""
        return {hold.stream for hold in self.holds}

    @property
    def is_drain(self) -> bool:
        """True when its events are parked ones."""
        return self.draining is not None

    def highest(self) -> dict[int, int]:
        """The highest id that it sends, by partition."""
        found: dict[int, int] = {}
        for delivery in self.send:
            number, row, _ = delivery.key
            if row > found.get(number, 0):
                found[number] = row
        return found


class NeedsPayload(Exception):
    """The lane is held, but not for this delivery's destination: it was read without payload, and has to be sent."""


def fresh(reading: Reading, read: Mapping[int, Owned], streams: Streams, bare: frozenset[int]) -> Round:
    """Sort what was read of the partitions ``read``, in order: what may go now, and what waits behind a hold.

    ``bare`` lanes were read without payload. Raises NeedsPayload.
    """
    numbers = {d.key.partition_no for d in reading.deliveries} | {o.key.partition_no for o in reading.orphans}
    owned = {number: read[number] for number in numbers}
    aside = [orphan(one) for one in reading.orphans]
    if any(one.holds for one in owned.values()):
        send, held = _without_held(reading.deliveries, owned, streams, bare)
        aside += held
    else:
        send = list(reading.deliveries)
    size = sum([len(delivery.message.payload) for delivery in send])
    return Round(owned, send, aside, _read_to(reading, read), None, size)


ORPHAN = "orphan: the event row is missing (deleted by hand?); there is nothing to send"


def orphan(work: OrphanWork, target: int = 0) -> Aside:
    """Work without its event is dead. Nothing waits for it: there is nothing that could come before the others."""
    return Aside(work.key, Stream(work.key.partition_no, work.lane, target), "DEAD", None, work.attempts, ORPHAN)


def _without_held(
    deliveries: Sequence[Delivery], owned: Mapping[int, Owned], streams: Streams, bare: frozenset[int]
) -> tuple[list[Delivery], list[Aside]]:
    send: list[Delivery] = []
    held: list[Aside] = []
    for delivery in deliveries:
        holds = owned[delivery.key.partition_no].holds
        stream = streams.of(delivery)
        hold = holds.over(stream) if holds else None
        if hold is not None:
            held.append(Aside(delivery.key, stream, "HELD", None, delivery.attempts, behind(hold.head_id)))
        elif delivery.lane in bare:
            raise NeedsPayload
        else:
            send.append(delivery)
    return send, held


def behind(head_id: int) -> str:
    """The reason of an event that waits for an earlier one."""
    return f"held: behind event row {head_id} of its key"


def _read_to(reading: Reading, read: Mapping[int, Owned]) -> dict[int, int]:
    """A reading goes by partition number, so those before the last row's were read to their end."""
    if not reading.more:
        return {number: one.passed for number, one in read.items()}
    last = max([d.key for d in reading.deliveries[-1:]] + [o.key for o in reading.orphans[-1:]])
    found = {number: one.passed for number, one in read.items() if number < last.partition_no}
    # The other destinations of the last event may have been cut off.
    found[last.partition_no] = min(read[last.partition_no].passed, last.id - 1)
    return found
