"""The end of a round: one settlement, written as soon as the database lets us, and what it means for the estate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from ...errors import DatabaseUnavailable
from ...event.message import Message
from ...ports import Aside, OrderedSettled, OrderedSettlement, OrderedStore, Progress, Sent, SentParked, Tenure
from ..repeats import Repeats
from ..stats import RelayStats
from .plan import Decided
from .rounds import Round

log = logging.getLogger("pillarbox.relay")

HANDED_AHEAD = 50_000
"""Row ids by which ``handed_to`` runs ahead, so that it can ride on the settlement before."""

_LEVELS: Final = {"HELD": logging.DEBUG, "RETRY": logging.INFO, "DEAD": logging.ERROR}
_PAUSE = 0.2  # seconds between attempts to record outcomes while the database is away


class Patience(NamedTuple):
    """How long a settlement is tried: seconds of the lease, the clock, how to wait, and whether the end is near."""

    lease: float
    monotonic: Callable[[], float]
    rest: Callable[[float], None]
    stopping: Callable[[], bool]


class Owner(Protocol):
    """Keeps the estate."""

    def lose(self, tenure: Tenure) -> None:
        """It is another relay's."""
        ...

    def forget(self, tenure: Tenure) -> None:
        """Nobody knows in which state it is."""
        ...


class Settling:
    """Writes outcomes. ``owner`` hears of partitions that turned out to be another relay's, or must be forgotten."""

    def __init__(self, store: OrderedStore, stats: RelayStats, patience: Patience, owner: Owner) -> None:
        self._store = store
        self._stats = stats
        self._patience = patience
        self._owner = owner
        self._repeats = Repeats()

    def settle(self, round_: Round, decided: Decided) -> None:
        """Record the round. DatabaseUnavailable when it could not be: its events will go out again."""
        aside = [*round_.aside, *decided.aside]
        holds = {**{hold.stream: hold for hold in round_.holds}, **decided.holds}
        settlement = OrderedSettlement(
            self._progress(round_, decided),
            sent=decided.sent,
            aside=() if round_.is_drain else aside,
            sent_parked=decided.sent_parked,
            aside_parked=aside if round_.is_drain else (),
            holds=list(holds.values()),
            freed=decided.freed,
        )
        try:
            settled = self._record(settlement)
        except DatabaseUnavailable:
            self.abandon(round_, len(decided.sent) + len(decided.sent_parked) + len(aside))
            raise
        self._apply(round_, decided, settlement, settled)

    def abandon(self, round_: Round, outcomes: int) -> None:
        """Its outcomes may be recorded or not: holds that we do not know of may be. So its partitions have to be
        acquired anew, once their leases end."""
        self._stats.unrecorded += outcomes
        for one in round_.owned.values():
            one.busy = False
            self._owner.forget(one.tenure)

    def _record(self, settlement: OrderedSettlement) -> OrderedSettled:
        lease, monotonic, rest, stopping = self._patience
        until = monotonic() + lease
        while True:
            try:
                return self._store.settle(settlement)
            except DatabaseUnavailable as error:
                self._stats.database_errors += 1
                if monotonic() >= until or stopping():
                    log.error("outcomes are not recorded, their events will be sent again: %s", error)
                    raise
                log.warning("sent but not recorded yet, trying again: %s", error)
                rest(_PAUSE)

    def _progress(self, round_: Round, decided: Decided) -> list[Progress]:
        """The new state of each partition: where to read from, and up to where ids may be handed out next."""
        gone: dict[int, int] = {}  # the highest id that leaves the queue, by partition
        keys = [one.key for one in decided.sent]
        keys += [one.key for one in round_.aside] + [one.key for one in decided.aside]
        for number, row, _ in keys:
            if row > gone.get(number, 0):
                gone[number] = row
        for number, owned in round_.owned.items():
            staying, to = decided.staying.get(number), round_.read_to.get(number)
            if to is not None:
                owned.low_id = max(owned.low_id, to if staying is None else min(to, staying - 1))
            if number in gone and not round_.is_drain:
                highest = gone[number] if staying is None else min(gone[number], staying - 1)
                owned.settled_to = max(owned.settled_to, highest)
            if owned.is_careful:
                owned.handed_to = 0
            elif owned.handed_to and number in gone:
                owned.handed_to = max(owned.handed_to, gone[number] + HANDED_AHEAD)
        return [owned.progress() for owned in round_.owned.values()]

    def _apply(self, round_: Round, decided: Decided, settlement: OrderedSettlement, settled: OrderedSettled) -> None:
        now = self._patience.monotonic()
        for tenure in settled.lost:
            self._count_lost(tenure, settlement)
            self._owner.lose(tenure)
        lost = {tenure.partition_no for tenure in settled.lost}
        for one in round_.owned.values():
            one.busy = False
        for hold in settlement.holds:
            if (owned := round_.owned.get(hold.stream.partition_no)) is not None:
                owned.holds.put(hold, now)
        self._apply_drain(round_, decided, settled, now)
        aside = [one for one in (*settlement.aside, *settlement.aside_parked) if one.key.partition_no not in lost]
        self._count(settled, aside, round_)

    def _apply_drain(self, round_: Round, decided: Decided, settled: OrderedSettled, now: float) -> None:
        freed = set(decided.freed) - set(settled.kept)
        for stream in round_.draining or {}:
            owned = round_.owned[stream.partition_no]
            waiting = owned.holds.get(stream)
            if stream in freed:
                owned.holds.drop(stream)
            elif stream in decided.holds or stream in round_.given_up:
                continue
            elif waiting is not None and decided.outage is None:
                # Its head is through: the rest follows in batches.
                owned.holds.put(waiting.hold._replace(mode="drain", due_in=0.0), now)

    def _count(self, settled: OrderedSettled, aside: Sequence[Aside], round_: Round) -> None:
        stats = self._stats
        stats.sent += settled.sent
        stats.vanished += len(settled.vanished)
        if not aside:
            return
        messages = {delivery.key: delivery.message for delivery in round_.send}
        for one in aside:
            charged = not one.error.startswith("destination-away:")
            stats.held += one.state == "HELD"
            stats.dead += one.state == "DEAD"
            stats.retried += one.state == "RETRY" and charged
            self._tell(one, messages.get(one.key))

    def _tell(self, one: Aside, message: Message | None) -> None:
        """An exchange that is missing refuses every event for it, at every attempt: that is one thing to be said."""
        level, more = _LEVELS[one.state], ""
        if one.state == "RETRY":
            destination = one.key.dest if message is None else message.destination
            before = self._repeats.due((destination, one.error), self._patience.monotonic())
            level = logging.DEBUG if before is None else level
            more = f" ({before} more in the minute before)" if before else ""
        log.log(level, "%s: %s, %s%s", _named(one, message), one.state, one.error, more)

    def _count_lost(self, tenure: Tenure, settlement: OrderedSettlement) -> None:
        rows: list[Sent | SentParked | Aside] = [*settlement.sent, *settlement.aside]
        rows += [*settlement.sent_parked, *settlement.aside_parked]
        self._stats.lost += sum(row.key.partition_no == tenure.partition_no for row in rows)


def _named(one: Aside, message: Message | None) -> str:
    """What people look for: what was parked as it was read, or has no event, is known by its row alone."""
    if message is None:
        return f"event row {one.key.id}, destination {one.key.dest}"
    return f"event {message.event_id} (row {one.key.id}, key {message.key!r}) for {message.destination!r}"
