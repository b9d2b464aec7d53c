"""Which round comes next, and reading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...ports import Aside, Delivery, Hold, OrderedQueue, Reading, Span, Stream
from . import careful
from .estate import Estate, Owned, Streams
from .rounds import NeedsPayload, Round, fresh, orphan

_HEADS_PER_ROUND: Final = 200
_BARE_LANES: Final = 1_000
_DRAINS_IN_A_ROW: Final = 4
"""So often a partition's parked events go before its fresh ones are looked at again."""
_SPANS_OF_A_BACKLOG: Final = 2
"""MySQL reads several ranges exactly only while they are few; with nearly all it walks over the others' rows."""


class Reader:
    """Takes fresh rounds and drains in turn, so that neither starves the other, and partitions in turn, too."""

    def __init__(self, store: OrderedQueue, estate: Estate, streams: Streams, *, abreast: bool = False) -> None:
        """``abreast``: the publisher waits for each confirm of a stream, so that a round is to have many streams."""
        self._store = store
        self._abreast = abreast
        self._estate = estate
        self._streams = streams
        self._start = 0
        self._backlog = False  # the last reading left something behind
        self._drain_from = 0
        self._drained_last = False

    def next_round(self, limit: int, budget: int, now: float) -> Round | None:
        """At most ``limit`` events and ``budget`` bytes of payload (but at least one event); None: nothing to do."""
        self._wake_care(now)
        drain_first, self._drained_last = not self._drained_last, False
        if drain_first and (round_ := self._drain(limit, budget, now)) is not None:
            self._drained_last = True
            return round_
        round_ = self._fresh(limit, budget, now)
        if round_ is None:  # partitions that had drained for long were looked at, and may drain again
            round_ = self._drain(limit, budget, now)
        return round_

    # From the queue -----------------------------------------------------------------------------------------------

    def _fresh(self, limit: int, budget: int, now: float) -> Round | None:
        while (suspect := self._suspect()) is not None and suspect.is_free:
            # Alone: what a crash takes along is then known.
            size = careful.group_size(suspect.crashes, limit)
            reading, group = self._read({suspect.number: suspect}, size, budget)
            self._end_care(suspect, reading, now)
            if group.owned:
                return group
            if suspect.is_careful:
                break
        free = self._estate.free(lambda one: not one.is_careful)
        later = [one for one in free if one.number >= self._start]
        if self._abreast and self._backlog and limit > 1 and (later or free):
            return self._several(later or free, limit, budget) or self._ordinary(free, limit, budget)
        # In a backlog each partition probably fills a round by itself, and few ranges are read exactly.
        some = later[:_SPANS_OF_A_BACKLOG] if self._backlog else later
        round_ = self._ordinary(some, limit, budget) if some else None
        if round_ is None and len(some) < len(free):
            round_ = self._ordinary(free, limit, budget)
        elif round_ is not None and not self._backlog and len(some) < len(later):
            self._start = some[-1].number + 1
        return round_

    def _several(self, free: Sequence[Owned], limit: int, budget: int) -> Round | None:
        """A share of the round from each of half of the partitions, by a statement for each; the next has the others.

        Two partitions of sixteen hold an eighth of the keys: with 1,000 keys, 2,000 events would wait for confirms 16
        times, and 4 times with eight partitions.
        """
        some = free[: min(-(-len(self._estate) // 2), limit)]
        round_, more = Round({}, []), False
        for one in some:
            if round_.bytes >= budget:  # the others are first in the next one
                more = True
                break
            reading, part = self._read({one.number: one}, limit // len(some), budget - round_.bytes)
            round_.add(part)
            more = more or reading.more
            self._start = one.number + 1
        self._backlog = more
        return round_ if round_.owned else None

    def _ordinary(self, free: Sequence[Owned], limit: int, budget: int) -> Round | None:
        reading, round_ = self._read({one.number: one for one in free}, limit, budget)
        self._backlog = reading.more
        # Behind the last one read; from the first one when everything was read: idling costs one statement.
        self._start = max(round_.owned) + 1 if reading.more and round_.owned else 0
        return round_ if round_.owned else None

    def _read(self, read: Mapping[int, Owned], limit: int, budget: int) -> tuple[Reading, Round]:
        spans = [Span(one.number, one.low_id) for one in read.values()]
        bare = frozenset(lane for one in read.values() if one.holds for lane in one.holds.lanes(_BARE_LANES))
        reading = self._store.read(spans, limit, budget, bare)
        try:
            round_ = fresh(reading, read, self._streams, bare)
        except NeedsPayload:
            reading = self._store.read(spans, limit, budget, ())
            round_ = fresh(reading, read, self._streams, frozenset())
        for number, to in round_.read_to.items():
            read[number].drains = 0
            if number not in round_.owned:  # nothing is left there up to the mark
                read[number].low_id = max(read[number].low_id, to)
        return reading, round_

    # After a crash ------------------------------------------------------------------------------------------------

    def _suspect(self) -> Owned | None:
        """The one partition with a crash behind it that may be worked on."""
        ones = sorted((one for one in self._estate if one.is_careful and not one.leaving), key=lambda one: one.number)
        return next((one for one in ones if one.busy), next(iter(ones), None))

    def _end_care(self, owned: Owned, reading: Reading, now: float) -> None:
        """When all that was on its way at the crash is through. While the rest of it waits behind a hold, it rests."""
        first = [one.key.id for one in reading.deliveries[:1]] + [one.key.id for one in reading.orphans[:1]]
        left = bool(first) and min(first) <= owned.careful_to
        enough = careful.is_enough(len(owned.charged))
        if not enough and (left or owned.holds.due(now, 1)):
            return
        if not enough and careful.may_wait(owned.holds, owned.careful_to):
            owned.resting = True
            return
        owned.crashes = owned.careful_to = 0
        owned.charged.clear()

    def _wake_care(self, now: float) -> None:
        """What rested behind a hold is sent in groups as small as before."""
        for owned in self._estate:
            if owned.resting and owned.is_free and owned.holds.due(now, 1):
                owned.resting = False

    # From the parked ----------------------------------------------------------------------------------------------

    def _drain(self, limit: int, budget: int, now: float) -> Round | None:
        """Parked events whose hold is due: heads of many streams together, or one stream's long tail."""
        suspect = self._suspect()
        may = [one for one in self._estate.free(lambda one: bool(one.holds)) if one.drains < _DRAINS_IN_A_ROW]
        ones = [one for one in may if not one.is_careful or one is suspect]
        for owned in sorted(ones, key=lambda one: one.number < self._drain_from):
            size = careful.group_size(owned.crashes, limit)
            due = owned.holds.due(now, min(size, _HEADS_PER_ROUND))
            if due:
                owned.drains += 1
                self._drain_from = owned.number + 1
                return self._read_parked(owned, due, size, budget)
        return None

    def _read_parked(self, owned: Owned, due: Sequence[Hold], limit: int, budget: int) -> Round:
        send: list[Delivery] = []
        aside: list[Aside] = []
        draining: dict[Stream, bool] = {}
        size = 0
        due = sorted(due, key=lambda hold: hold.mode == "drain")  # a long tail keeps no head from being tried
        for place, hold in enumerate(due):
            if len(send) >= limit or (send and size >= budget):
                break
            share = -(-(limit - len(send)) // (len(due) - place))  # nor another tail from being sent
            at_most = share if hold.mode == "drain" else 1  # a head that failed is tried alone
            reading = self._store.read_parked(hold.stream, None, at_most, budget - size)
            draining[hold.stream] = reading.more
            send += reading.deliveries
            aside += [orphan(one, hold.stream.target) for one in reading.orphans]
            size += sum(len(delivery.message.payload) for delivery in reading.deliveries)
        return Round({owned.number: owned}, send, aside, {}, draining, size)
