"""What there is: a database, a broker, two relays and the writers, small enough to look at every interleaving.

One partition, one destination, two lanes (keys) ``A`` and ``B``, up to three events. Ids start at 0; a set of events is
a bit mask. Everything is hashable.
"""

from typing import NamedTuple

LANES = "AB"


class Relay(NamedTuple):
    """What a relay remembers. ``phase``: see rules.py. ``current``: its tenure is the partition's (it cannot see that
    itself). A set of bits may be about events of a round under way."""

    phase: str = "-"
    current: bool = False
    low: int = 0  # reads from this id on
    handed: bool = False  # handed_to is set in the database, so far as it knows
    holds: str = "--"  # its idea of the holds, for A and B: - none, b backoff, d dead, r drain
    to: int = 0  # all it ever read below this id has left the queue
    mark: int = 0  # a low mark on its way up
    watched: int = 0  # transactions that must end before
    passed: int = 0  # where the low mark goes when the round under way left nothing behind
    drains: str = ""  # the lane whose parked rows are sent; empty: the round is of ready rows
    batch: tuple[int, ...] = ()
    results: str = ""  # one for each of the batch: C confirmed, R retry, P permanent, V left, w withheld
    park: int = 0
    last: int = 0  # one above the highest id that was read
    more: bool = False
    charged: int = 0  # what it sent alone and survived
    careful: int = 0
    crashes: int = 0


class State(NamedTuple):
    """One moment."""

    # writers
    todo: str  # lanes of events that nobody has begun to write
    lanes: str  # lanes of the ids that were drawn
    open: int  # drawn, in a transaction that has not ended
    committed: int
    # the tables
    ready: int = 0
    held: int = 0
    retry: int = 0
    dead: int = 0
    buried: int = 0
    holds: str = "--"
    claims: tuple[int, ...] = (0, 0, 0)
    released: bool = True  # nobody owns the partition
    low: int = 0
    handed: bool = False
    careful: int = 0
    crashes: int = 0
    # the broker
    seen: int = 0
    # the relays, in no particular order
    relays: tuple[Relay, Relay] = (Relay(), Relay())
    # what may still go wrong
    stalls: int = 0
    kills: int = 0
    failures: int = 0
    rollbacks: int = 0
    operators: int = 0
    releases: int = 0
    deaths: int = 0  # how often the poison killed a relay


def bits(mask: int) -> list[int]:
    """The ids in a mask, lowest first."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def mask_of(state: State, lane: str) -> int:
    """All ids of a lane."""
    return sum(1 << number for number, one in enumerate(state.lanes) if one == lane)


def with_mode(holds: str, lane: str, mode: str) -> str:
    """The holds with one of them changed."""
    return mode + holds[1] if lane == "A" else holds[0] + mode


def mode_of(holds: str, lane: str) -> str:
    """The hold of one lane."""
    return holds[LANES.index(lane)]
