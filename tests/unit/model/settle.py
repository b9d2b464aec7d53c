"""The settlement of a round: one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.model.explore import Wrong
from tests.unit.model.state import LANES, Relay, State, bits, mask_of, mode_of, with_mode

if TYPE_CHECKING:
    from tests.unit.model.rules import Rules


def settled(s: State, i: int, r: Relay, rules: Rules) -> State:
    """The state after relay ``i``, which is ``r``, has settled its round."""
    s = _rows(s, r, rules)
    left = [number for number, result in zip(r.batch, r.results, strict=True) if result in "Vw"]
    low, to = r.low, r.to
    if not r.drains:
        to = min(left) if left else max(r.last, r.to)
        low = max(low, min(r.passed, min(left, default=r.last if r.more else r.passed)))
        if not rules.read_from_low:
            low = r.low
    handed = bool(r.more or left)
    r = r._replace(holds=_merged(s, r), low=low, to=to, handed=handed)
    if r.crashes and not (_still_careful(s, r, low) if rules.careful_drains else low < r.careful):
        r = r._replace(crashes=0, careful=0)
    r = r._replace(phase="o", drains="", batch=(), results="", park=0, last=0, more=False, passed=0)
    relays = (r, s.relays[1 - i])
    return s._replace(relays=(min(relays), max(relays)), low=low, handed=handed, careful=r.careful, crashes=r.crashes)


def _rows(s: State, r: Relay, rules: Rules) -> State:
    """Rows by exact keys: those that are gone stay gone."""
    ready, held, retry, dead, holds, claims = s.ready, s.held, s.retry, s.dead, s.holds, list(s.claims)
    for number, result in zip(r.batch, r.results, strict=True):
        bit, lane = 1 << number, s.lanes[number]
        there = (held | retry if r.drains else ready) & bit
        if result == "C" and not s.seen & bit:
            raise Wrong(f"{number} has a receipt, but the broker does not have it")
        if result not in "Vw":
            claims[number] = 0
            ready, held, retry = (ready, held & ~bit, retry & ~bit) if r.drains else (ready & ~bit, held, retry)
        if result == "R":
            retry |= there
            holds = with_mode(holds, lane, "b") if rules.hold_successors else holds
        elif result in "PX":
            dead |= there
            holds = with_mode(holds, lane, "d") if rules.hold_successors else holds
    held |= r.park & ready
    ready &= ~r.park
    s = s._replace(ready=ready, held=held, retry=retry, dead=dead, holds=holds, claims=tuple(claims))
    return s._replace(holds=_freed(s, r, rules.free_when_empty)) if r.drains else s


def _freed(s: State, r: Relay, free_when_empty: bool) -> str:
    """The holds after a round of what waits: freed when nothing waits any more."""
    if set(r.results) - {"C"}:
        return s.holds
    waits = (s.held | s.retry) & mask_of(s, r.drains) and free_when_empty
    return with_mode(s.holds, r.drains, "r" if waits else "-")


def _merged(s: State, r: Relay) -> str:
    """The relay knows what it wrote; what an operator did meanwhile it finds out by looking."""
    lanes = {s.lanes[number] for number in r.batch} | ({r.drains} if r.drains else set())
    return "".join(mode_of(s.holds if lane in lanes else r.holds, lane) for lane in LANES)


def _still_careful(s: State, r: Relay, low: int) -> bool:
    """True until nothing can be sent any more that may have been on its way at the crash: ready, or waiting."""
    sendable = bits(s.held | s.retry)
    waits = any(n < r.careful and mode_of(s.holds, s.lanes[n]) in "br" for n in sendable)
    return low < r.careful or waits
