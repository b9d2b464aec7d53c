"""The algorithm of the ordered relay, as steps from one state to the next.

Phases of a relay: ``-`` owns nothing; ``o`` at rest; ``2`` between two statements of a read (a mutant's); ``h`` about
to persist that something is on its way; ``p`` publishing, one message a step; ``s`` about to settle.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.unit.model.explore import Step, Wrong
from tests.unit.model.settle import settled
from tests.unit.model.state import LANES, Relay, State, bits, mask_of, mode_of, with_mode

GROUPS = (256, 64, 16, 4, 1)
MAX_ALONE = 3


@dataclass(frozen=True)
class Rules:
    """The rules that make it right; each one off is a mutant, which the exploration must find."""

    writers_lock: bool = True  # a key's lock is held from before its id is drawn to the commit
    read_from_low: bool = True  # not from where the last read ended
    one_snapshot: bool = True  # a batch is read by one statement
    one_round: bool = True  # nothing is read while a round is under way
    fence_read: bool = True  # who lost the partition reads nothing
    wait_for_writers: bool = True  # the low mark waits for the transactions that were open
    read_again: bool = True  # … and for a read after their end
    withhold: bool = True  # nothing of a stream is sent after one that failed
    hold_successors: bool = True  # a failed head leaves a hold on its stream
    free_when_empty: bool = True  # a hold stays while anything waits under it
    fence_settle: bool = True  # a stale settlement is refused
    hand_before_send: bool = True  # that something is on its way is known before it is
    charge: bool = True  # a suspect that is sent alone is charged before
    charge_once: bool = True  # … once in each tenure
    careful_drains: bool = True  # what waits is worked carefully after a crash, too


@dataclass(frozen=True)
class Algorithm:
    """The steps under some rules. ``poison``: the event that kills whoever sends it. ``kinds`` of failures: R refused
    for now, U unknown (it arrived), P refused for good, V unavailable, W unavailable but it arrived."""

    rules: Rules = Rules()
    batch: int = 3
    poison: int = -1
    kinds: str = "RUPVW"

    def steps(self, state: State) -> Iterator[Step]:
        """Everything that may happen next."""
        yield from self._writers(state)
        yield from self._operator(state)
        for number in range(1 if state.relays[0] == state.relays[1] else 2):
            yield from self._relay(state, number)

    # Writers and operators ----------------------------------------------------------------------------------------

    def _writers(self, s: State) -> Iterator[Step]:
        for lane in sorted(set(s.todo)):
            if not (self.rules.writers_lock and s.open & mask_of(s, lane)):
                yield (
                    f"a writer draws {len(s.lanes)} for {lane}",
                    s._replace(todo=s.todo.replace(lane, "", 1), lanes=s.lanes + lane, open=s.open | 1 << len(s.lanes)),
                )
        for number in bits(s.open):
            bit = 1 << number
            yield f"{number} commits", s._replace(open=s.open & ~bit, committed=s.committed | bit, ready=s.ready | bit)
            if s.rollbacks:
                yield f"{number} rolls back", s._replace(open=s.open & ~bit, rollbacks=s.rollbacks - 1)

    def _operator(self, s: State) -> Iterator[Step]:
        for number in bits(s.dead) if s.operators else ():
            bit, lane = 1 << number, s.lanes[number]
            s2 = s._replace(dead=s.dead & ~bit, operators=s.operators - 1, holds=with_mode(s.holds, lane, "r"))
            claims = (*s.claims[:number], 0, *s.claims[number + 1 :])
            yield f"{number} is replayed", s2._replace(retry=s.retry | bit, claims=claims)
            yield f"{number} is buried", s2._replace(buried=s.buried | bit)

    # Relays -------------------------------------------------------------------------------------------------------

    def _relay(self, s: State, i: int) -> Iterator[Step]:
        r = s.relays[i]
        if r.phase == "-":
            yield from self._acquire(s, i)
            return
        if s.kills:
            yield f"relay {i} dies", _put(s, i, Relay(), kills=s.kills - 1)
        if r.phase == "o":
            yield from self._rest(s, i, r)
        elif r.phase == "2":
            yield from self._second_read(s, i, r)
        elif r.phase == "h":
            yield from self._hand(s, i, r)
        elif r.phase == "p":
            yield from self._publish(s, i, r)
        elif r.current or not self.rules.fence_settle:
            if not self.rules.one_round and r.batch and not r.drains:
                yield from self._second_read(s, i, r)
            yield f"relay {i} settles {r.batch} {r.results}", settled(s, i, r, self.rules)
        else:
            yield f"relay {i} is refused", _put(s, i, Relay())

    def _acquire(self, s: State, i: int) -> Iterator[Step]:
        other = s.relays[1 - i]
        if other.current and not s.stalls:
            return
        careful, crashes = s.careful, s.crashes
        if not s.released and s.handed:
            crashes, careful = crashes + 1, max(careful, s.committed.bit_length())
        mine = Relay("o", True, s.low, holds=s.holds, to=s.low, careful=careful, crashes=crashes)
        relays = (mine, other._replace(current=False)) if i == 0 else (other._replace(current=False), mine)
        yield (
            f"relay {i} acquires",
            s._replace(
                relays=_sorted(*relays),
                stalls=s.stalls - other.current,
                released=False,
                handed=False,
                careful=careful,
                crashes=crashes,
            ),
        )

    def _rest(self, s: State, i: int, r: Relay) -> Iterator[Step]:
        if not r.current:
            yield f"relay {i} learns that it lost", _put(s, i, Relay())
            if self.rules.fence_read:
                return
        yield from self._read(s, i, r)
        for lane in LANES:
            if mode_of(r.holds, lane) in "br" or mode_of(s.holds, lane) == "r":
                yield from self._drain(s, i, r, lane)
        if r.to > max(r.low, r.mark) and r.mark == 0:
            watched = s.open if self.rules.wait_for_writers else 0
            yield f"relay {i} marks {r.to}", _put(s, i, r._replace(mark=r.to, watched=watched))
        if s.releases and r.current:
            yield f"relay {i} releases", _put(s, i, Relay(), releases=s.releases - 1, released=True, handed=False)
        loose = s.retry & sum(mask_of(s, lane) for lane in LANES if mode_of(s.holds, lane) == "-")
        if loose and r.current:
            low = min(r.low, bits(loose)[0])
            yield (
                f"relay {i} moves what is due",
                _put(s, i, r._replace(low=low, to=low), ready=s.ready | loose, retry=s.retry & ~loose, low=low),
            )

    def _size(self, r: Relay, drains: bool = False) -> int:
        if r.crashes < 1 or (drains and not self.rules.careful_drains):
            return self.batch
        return min(self.batch, GROUPS[min(r.crashes, len(GROUPS)) - 1])

    def _read(self, s: State, i: int, r: Relay) -> Iterator[Step]:
        has_passed = r.mark > 0 and not r.watched & s.open
        passed = r.mark if has_passed else 0
        if has_passed and not self.rules.read_again:
            r = r._replace(low=max(r.low, r.mark))
        rows = [number for number in bits(s.ready) if number >= r.low]
        if not rows and not passed:
            return
        size = self._size(r) if self.rules.one_snapshot else 1
        r = r._replace(passed=passed, mark=0 if passed else r.mark, drains="")
        r = self._taken(s, r, rows[:size], more=len(rows) > size)
        phase = "2" if not self.rules.one_snapshot else "h" if r.batch else "s"
        yield f"relay {i} reads {rows[:size]}", _put(s, i, self._skip_hand(r._replace(phase=phase)))

    def _second_read(self, s: State, i: int, r: Relay) -> Iterator[Step]:
        rows = [number for number in bits(s.ready) if number >= r.last][: self.batch - len(r.batch)]
        if r.phase == "s" and not rows:
            return
        first, phase = r.batch, "p" if r.phase == "s" else "h" if r.batch or rows else "s"
        r = self._taken(s, r, rows, more=r.more)
        r = r._replace(batch=first + r.batch, phase=phase)
        yield f"relay {i} reads on {rows}", _put(s, i, self._skip_hand(r))

    def _taken(self, s: State, r: Relay, rows: list[int], *, more: bool) -> Relay:
        park = [number for number in rows if mode_of(r.holds, s.lanes[number]) != "-"]
        batch = tuple(number for number in rows if number not in park)
        return r._replace(
            batch=batch,
            park=r.park | sum(1 << number for number in park),
            last=max(rows[-1] + 1 if rows else 0, r.last if r.phase in "2s" else r.low),
            more=more,
            low=r.low if self.rules.read_from_low or not rows else rows[-1] + 1,
        )

    def _drain(self, s: State, i: int, r: Relay, lane: str) -> Iterator[Step]:
        rows = bits((s.retry | s.held) & mask_of(s, lane))
        holds = with_mode(r.holds, lane, "r" if mode_of(s.holds, lane) == "r" else mode_of(r.holds, lane))
        size = 1 if mode_of(holds, lane) == "b" else self._size(r, drains=True)
        batch = tuple(rows[:size])
        r = r._replace(phase="h" if batch else "s", holds=holds, drains=lane, batch=batch, more=len(rows) > size)
        yield f"relay {i} reads {batch}, which wait", _put(s, i, self._skip_hand(r))

    def _skip_hand(self, r: Relay) -> Relay:
        needed = self.rules.hand_before_send and not r.handed
        return r._replace(phase="p") if r.phase == "h" and not needed and not self._is_alone(r) else r

    def _is_alone(self, r: Relay) -> bool:
        careful = r.crashes >= len(GROUPS) and (not r.drains or self.rules.careful_drains)
        return careful and self.rules.charge

    def _hand(self, s: State, i: int, r: Relay) -> Iterator[Step]:
        if not r.current:
            yield f"relay {i} is refused", _put(s, i, Relay())
            return
        number = r.batch[0]
        bit = 1 << number
        if not self._is_alone(r) or (r.charged & bit and self.rules.charge_once):
            yield f"relay {i} hands over", _put(s, i, r._replace(phase="p", handed=True), handed=True)
            return
        claims = (*s.claims[:number], s.claims[number] + 1, *s.claims[number + 1 :])
        given_up = claims[number] > MAX_ALONE
        r = r._replace(phase="s" if given_up else "p", results="X" if given_up else "", handed=True)
        r = r._replace(charged=r.charged | bit)
        yield f"relay {i} charges {number}", _put(s, i, r, handed=True, claims=claims)

    # The broker ---------------------------------------------------------------------------------------------------

    def _publish(self, s: State, i: int, r: Relay) -> Iterator[Step]:
        number = r.batch[len(r.results)]
        if number == self.poison:
            yield f"{number} kills relay {i}", _put(s, i, Relay(), deaths=s.deaths + 1)
            yield f"{number} arrives and kills relay {i}", _put(_arrived(s, number), i, Relay(), deaths=s.deaths + 1)
            return
        yield f"relay {i} sends {number}", _put(_arrived(s, number), i, self._answered(s, r, "C"))
        if s.failures:
            for kind in self.kinds:
                s2 = _arrived(s, number) if kind in "UW" else s
                result = {"U": "R", "W": "V"}.get(kind, kind)
                yield (
                    f"relay {i} sends {number}: {kind}",
                    _put(s2, i, self._answered(s, r, result), failures=s.failures - 1),
                )

    def _answered(self, s: State, r: Relay, result: str) -> Relay:
        """With what follows at once: whatever is withheld."""
        results = r.results + result
        while self.rules.withhold and len(results) < len(r.batch):
            lane = s.lanes[r.batch[len(results)]]
            sent = zip(r.batch, results, strict=False)
            if not any(s.lanes[number] == lane and one != "C" for number, one in sent):
                break
            results += "w"
        return r._replace(results=results, phase="s" if len(results) == len(r.batch) else "p")


def _arrived(s: State, number: int) -> State:
    """The broker has it now. First occurrences of a stream come in id order, all but those that were buried."""
    bit = 1 << number
    if s.seen & bit:
        return s
    earlier = mask_of(s, s.lanes[number]) & (bit - 1) & s.committed
    if missing := earlier & ~s.seen & ~s.buried:
        raise Wrong(f"{number} arrives before {bits(missing)}")
    if mask_of(s, s.lanes[number]) & s.seen & -bit and not s.buried & bit:
        raise Wrong(f"{number} arrives after a later one")
    return s._replace(seen=s.seen | bit)


def _sorted(a: Relay, b: Relay) -> tuple[Relay, Relay]:
    return (a, b) if a <= b else (b, a)


def _put(s: State, i: int, relay: Relay, **changes: object) -> State:
    return s._replace(relays=_sorted(relay, s.relays[1 - i]), **changes)


@dataclass(frozen=True)
class Check:
    """What is wrong with a state, if anything is."""

    poison: int
    max_deaths: int
    failures: bool

    def __call__(self, s: State) -> str:
        there = s.ready | s.held | s.retry | s.dead | s.buried | s.seen
        if lost := s.committed & ~there:
            return f"lost: {bits(lost)}"
        if s.deaths > self.max_deaths:
            return f"the poison killed {s.deaths} relays"
        if not self.failures and (wrongly := s.dead & ~(1 << self.poison if self.poison >= 0 else 0)):
            return f"dead without a reason: {bits(wrongly)}"
        return ""


def is_good_end(s: State) -> bool:
    """Everything is at the broker, or given up, or waits behind what was given up."""
    if s.todo or s.open or s.ready or any(r.phase not in "-o" for r in s.relays):
        return False
    for lane in LANES:
        mine, mode = mask_of(s, lane), mode_of(s.holds, lane)
        if mode == "d" and not s.dead & mine:
            return False
        if (s.held | s.retry) & mine and mode != "d":
            return False
    return True
