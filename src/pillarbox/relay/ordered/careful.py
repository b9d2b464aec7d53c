"""After a crash: what was on its way then is sent in groups that shrink with each further crash, so that an event that
kills the relay that sends it is found, and its neighbours are delivered.

Crashes are counted by partition, and only for a partition that had something on its way. So the count grows for the
culprit's partition alone, as long as partitions with a crash behind them are worked one at a time.
"""

from __future__ import annotations

from typing import Final

from .estate import Holds

GROUPS: Final = (256, 64, 16, 4, 1)
"""Events sent together after one crash, two, …"""

MAX_ALONE: Final = 3
"""So many times an event may be sent alone and take the relay with it."""

ALONE_ENOUGH: Final = 500
"""The culprit was in a group of at most four. Far more than that, since parked events may come in another order."""


def group_size(crashes: int, batch: int) -> int:
    """How many events may be sent together after so many crashes in a row."""
    return batch if crashes < 1 else min(batch, GROUPS[min(crashes, len(GROUPS)) - 1])


def is_alone(crashes: int) -> bool:
    """True when each event is sent alone, and charged for it before."""
    return crashes >= len(GROUPS)


def is_enough(sent_alone: int) -> bool:
    """True when so many were sent alone, and the relay lives, that the culprit is none of those that went before."""
    return sent_alone >= ALONE_ENOUGH


def may_wait(holds: Holds, careful_to: int) -> bool:
    """True when some of what was on its way at the crash may wait behind a hold that will come due by itself."""
    return any(one.hold.head_id <= careful_to for one in holds.coming)


def is_given_up(claims: int) -> bool:
    """True when an event, charged so often, is not sent any more."""
    return claims > MAX_ALONE


def reason() -> str:
    """What the dead letter says."""
    return f"crash-loop: {MAX_ALONE} relays died while they sent this event alone; it stops the relay that sends it"
