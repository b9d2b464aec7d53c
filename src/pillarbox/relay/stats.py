"""What a relay has done since it started."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class RelayStats:
    """Counters, written by the relay's own thread only. Reading them from another thread is safe."""

    claimed: int = 0
    sent: int = 0
    retried: int = 0
    postponed: int = 0  # parked uncharged, because their destination is in trouble while the broker answers
    dead: int = 0
    given_back: int = 0
    unknown: int = 0  # sent, no answer
    lost: int = 0  # outcomes refused: another owner holds the row
    unrecorded: int = 0  # outcomes that could not be written before their lease ended; the events go out again
    came_due: int = 0
    outages: int = 0
    database_errors: int = 0
    renewed: int = 0
    held: int = 0  # parked behind a failed event of their key, or of a destination in trouble
    skipped: int = 0  # failed events that later ones of their key did not wait for, by choice
    vanished: int = 0  # rows that were gone when they were settled, though their partition was ours
    stragglers: int = 0  # rows found below the low mark
    partitions: int = 0  # owned now
    acquired: int = 0
    released: int = 0
    partitions_lost: int = 0  # another relay owns them: outcomes refused
    crashes_seen: int = 0  # partitions taken over from a relay that had something on its way

    def as_dict(self) -> dict[str, int]:
        """A copy, by name."""
        return asdict(self)
