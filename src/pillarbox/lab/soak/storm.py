"""The storm: the schedule carried out on the crew, the links and the servers, one strike after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .crew import Crew
from .disturbing import Disturbances
from .gauge import Gauge, Standing
from .happened import Happened
from .links import Links
from .schedule import Disturb, Due, Freeze, Kill, Link, Strike

_LOOK: Final = 0.05  # seconds between looks at what is due
_KEPT_FOR: Final = 1.0  # seconds that a strike waits for a victim


@dataclass(slots=True)
class Storm:
    """``show`` is called about four times a second with the seconds since the beginning."""

    crew: Crew
    links: Links
    disturbances: Disturbances
    tell: Callable[[Happened], None]
    show: Callable[[float], None]

    def rage(self, due: Sequence[Due], seconds: float) -> None:
        """Carry out all strikes, for so long. KeyboardInterrupt passes through."""
        began = time.monotonic()
        coming = deque(due)
        waiting: deque[Due] = deque()  # their time has come, and nobody could be hit
        shown = 0.0
        while (now := time.monotonic() - began) < seconds:
            while coming and coming[0].at <= now:
                waiting.append(coming.popleft())
            for one in [waiting.popleft() for _ in range(len(waiting))]:
                if self._strike(one.strike):
                    continue
                if now - one.at < _KEPT_FOR and isinstance(one.strike, Kill | Freeze):
                    waiting.append(one)
                else:
                    self.tell(Happened(time.time(), "missed", _target(one.strike), _words(one.strike)))
            self._tend(min(_LOOK, max(0.0, coming[0].at - now)) if coming else _LOOK)
            if now - shown >= 0.25:
                shown = now
                self.show(now)

    def calm(self) -> None:
        """End all faults, and wait for the command that still runs (which has a deadline of its own)."""
        self.links.heal_all()
        while self.disturbances.busy:
            self._tend(_LOOK)
        self.crew.thaw_all()

    def _tend(self, seconds: float) -> None:
        self.crew.tend(seconds)
        self.links.tend()
        self.disturbances.tend()

    def _strike(self, strike: Strike) -> bool:
        match strike:
            case Kill() | Freeze():
                return self.crew.strike(strike)
            case Link():
                return self.links.strike(strike)
            case Disturb(command):
                self.disturbances.run(command)
                return True


def wait_until_at_rest(gauge: Gauge, crew: Crew, seconds: float, show: Callable[[float], None]) -> tuple[bool, float]:
    """Tend the crew until everything is sent and applied; returns whether it was within ``seconds``, and when."""
    began = time.monotonic()
    asked, standing = 0.0, Standing(1, 1, 0)
    while (now := time.monotonic() - began) < seconds:
        if now - asked >= 0.5 or asked == 0.0:
            asked = max(now, 1e-9)
            standing = gauge.standing() or standing
            show(now)
            if standing.at_rest:
                return True, now
        crew.tend(_LOOK)
    return False, seconds


def _target(strike: Strike) -> str:
    match strike:
        case Kill(role, index) | Freeze(role, index):
            return f"{role}-{index}"
        case Link(link):
            return link
        case Disturb(command):
            return str(command)


def _words(strike: Strike) -> str:
    match strike:
        case Kill():
            return "kill: nobody of this role could be hit"
        case Freeze():
            return "freeze: nobody of this role could be hit"
        case Link(_, how):
            return f"{how}: no such link, or it is broken already"
        case Disturb():
            return "disturb"
