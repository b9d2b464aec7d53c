"""What is done to whom, and when: a pure function of the options and the seed, so that it can be repeated.

What comes of it depends on the machine: a process that is just starting when its kill is due is not there to be killed,
and another one of its role takes its place. The report says what was really done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from .options import SoakOptions

RoleName = Literal["relay", "consumer", "writer"]
LinkName = Literal["shop", "consumers", "broker"]
LinkFault = Literal["cut", "freeze", "lose answers", "half open", "refuse"]

POINTS: Final[dict[RoleName, tuple[str, ...]]] = {
    "relay": ("relay.after-claim", "relay.after-confirm", "relay.after-settle"),
    "consumer": ("consumer.received", "consumer.after-handler", "consumer.after-commit", "consumer.after-ack"),
    "writer": ("outbox.before-commit", "outbox.after-commit"),
}
"""Where in its work a process of each role can be hit: the product's own fault points."""

LINKS: Final[tuple[LinkName, ...]] = ("shop", "consumers", "broker")

_SHARE: Final[dict[RoleName, float]] = {"relay": 0.45, "consumer": 0.35, "writer": 0.2}
_AT_A_POINT: Final = 0.7
_FAULTS: Final[Sequence[LinkFault]] = ("cut", "freeze", "lose answers", "lose answers", "half open", "refuse")
_LULL: Final = 0.05  # of the time at either end: something has to be under way, and the last fault has to be over


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL: at the next passage of ``point``, or wherever the process is when ``point`` is None."""

    role: RoleName
    index: int
    point: str | None


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP, likewise, and SIGCONT after ``seconds``: longer than a lease in about half of the cases."""

    role: RoleName
    index: int
    point: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Link:
    """A network fault on the way to a server, over after ``seconds`` (a cut is over at once)."""

    link: LinkName
    how: LinkFault
    seconds: float


@dataclass(frozen=True, slots=True)
class Disturb:
    """Run the command with this number."""

    command: int


Strike = Kill | Freeze | Link | Disturb


@dataclass(frozen=True, slots=True)
class Due:
    """A strike and its moment, in seconds from the beginning of the load."""

    at: float
    strike: Strike


def schedule(options: SoakOptions) -> tuple[Due, ...]:
    """All strikes of a soak, in the order of their moments.

    >>> schedule(SoakOptions(seconds=60, seed=1)) == schedule(SoakOptions(seconds=60, seed=1))
    True
    """
    # One stream of chance for each kind: another option for one of them leaves the others as they were.
    streams = [
        _kills(options, Random(f"{options.seed} kills")),
        _freezes(options, Random(f"{options.seed} freezes")),
        _links(options, Random(f"{options.seed} links")),
        _disturbances(options, Random(f"{options.seed} disturbances")),
    ]
    return tuple(sorted((due for stream in streams for due in stream), key=lambda due: due.at))


def _kills(options: SoakOptions, dice: Random) -> Iterator[Due]:
    roles = tuple(_SHARE)
    for at in _moments(options.seconds, options.kill_every, dice):
        (role,) = dice.choices(roles, [_SHARE[role] for role in roles])
        yield Due(at, Kill(role, dice.randrange(options.members[role]), _point(role, dice)))


def _freezes(options: SoakOptions, dice: Random) -> Iterator[Due]:
    roles = tuple(_SHARE)
    longest = min(7.0, options.seconds / 4)
    for at in _moments(options.seconds, max(1.5, options.kill_every * 4), dice):
        (role,) = dice.choices(roles, [_SHARE[role] for role in roles])
        seconds = round(dice.uniform(0.3, longest), 3)
        yield Due(at, Freeze(role, dice.randrange(options.members[role]), _point(role, dice), seconds))


def _links(options: SoakOptions, dice: Random) -> Iterator[Due]:
    longest = min(3.0, options.seconds / 6)
    for at in _moments(options.seconds, max(3.0, options.kill_every * 6), dice):
        how = dice.choice(_FAULTS)
        seconds = 0.0 if how == "cut" else round(dice.uniform(0.2, longest), 3)
        yield Due(at, Link(dice.choice(LINKS), how, seconds))


def _disturbances(options: SoakOptions, dice: Random) -> Iterator[Due]:
    count = options.disturbances
    for number in range(count):
        # Evenly spread, each at random within its share of the time: two restarts on top of one another test less.
        share = options.seconds * (1 - 2 * _LULL) / count
        at = options.seconds * _LULL + share * (number + dice.random() * 0.6)
        yield Due(at, Disturb(number % len(options.disturb)))


def _moments(seconds: float, mean: float, dice: Random) -> Iterator[float]:
    """About ``seconds / mean`` of them, at distances from half to one and a half of the mean."""
    at = min(seconds * _LULL, 2.0)
    last = seconds - at / 2
    while (at := at + dice.uniform(0.5, 1.5) * mean) < last:
        yield round(at, 4)


def _point(role: RoleName, dice: Random) -> str | None:
    return dice.choice(POINTS[role]) if dice.random() < _AT_A_POINT else None
