"""Recording the outcomes of one claim in one transaction, fenced by owner and token.

The fast way assumes that everything is still ours: one DELETE, one INSERT of receipts. Only when the number of rows
shows that something was lost, or a receipt is there already (an event that is sent again by an operator's hand), all is
undone and done again the slow way, which finds out row by row.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from sqlalchemy import Connection

from ..ports import Parked, Sent, Settled, Settlement, WorkKey
from .workrows import Fence, WorkRows

MAX_ERROR: Final = 2_000
MAX_ATTEMPTS: Final = 32_767  # what the column holds


class SomeLost(Exception):
    """Some rows were not ours any more: the transaction must be rolled back."""


class _Batch(NamedTuple):
    """A settlement in the order of its keys, which is the order in which rows are locked."""

    sent: list[Sent]
    parked: list[Parked]
    back: list[WorkKey]

    @property
    def leaving(self) -> list[WorkKey]:
        """The rows that leave the queue."""
        return sorted([one.key for one in self.sent] + [one.key for one in self.parked])

    def parted(self, keys: AbstractSet[WorkKey]) -> tuple[_Batch, _Batch]:
        """The part about ``keys``, and the rest."""
        inside = _Batch(
            [one for one in self.sent if one.key in keys],
            [one for one in self.parked if one.key in keys],
            [key for key in self.back if key in keys],
        )
        outside = _Batch(
            [one for one in self.sent if one.key not in keys],
            [one for one in self.parked if one.key not in keys],
            [key for key in self.back if key not in keys],
        )
        return inside, outside


def settle_all(connection: Connection, rows: WorkRows, fence: Fence, settlement: Settlement) -> Settled:
    """Settle a batch of which everything is still ours and nothing has a receipt.

    Raises SomeLost or IntegrityError when that is not so: then nothing may be committed.
    """
    batch = _batch(settlement)
    leaving = batch.leaving
    if rows.remove(connection, leaving, fence) != len(leaving):
        raise SomeLost
    if rows.give_back(connection, batch.back, fence) != len(batch.back):
        raise SomeLost
    rows.add_receipts(connection, batch.sent, fence, again=False)
    rows.add_parked(connection, batch.parked)
    return Settled(len(batch.sent), len(batch.parked), len(batch.back))


def settle_ours(connection: Connection, rows: WorkRows, fence: Fence, settlement: Settlement) -> Settled:
    """Settle what is still ours and report the rest as lost.

    What is gone but carries our own trace was settled by an earlier attempt whose commit went through unheard.
    """
    batch = _batch(settlement)
    keys = sorted([*batch.leaving, *batch.back])
    ours, gone = batch.parted(rows.ours(connection, keys, fence))
    rows.remove(connection, ours.leaving, fence)
    rows.give_back(connection, ours.back, fence)
    rows.add_receipts(connection, ours.sent, fence, again=True)
    rows.add_parked(connection, ours.parked)
    sent_before = rows.with_receipt(connection, [one.key for one in gone.sent], fence)
    parked_before = rows.are_parked(connection, gone.parked)
    back_before = rows.given_back(connection, gone.back, fence.token)
    _, lost = gone.parted(sent_before | parked_before | back_before)
    return Settled(
        len(ours.sent) + len(sent_before),
        len(ours.parked) + len(parked_before),
        len(ours.back) + len(back_before),
        tuple(sorted([*lost.leaving, *lost.back])),
    )


def storable(error: str) -> str:
    """The error text as every database takes it: no NUL, no lone surrogate, at most 2,000 characters.

    A text that cannot be stored would otherwise keep its whole batch from being settled, for ever.
    """
    return error[:MAX_ERROR].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")[:MAX_ERROR]


def _batch(settlement: Settlement) -> _Batch:
    parked = [
        one._replace(error=storable(one.error), attempts=min(one.attempts, MAX_ATTEMPTS)) for one in settlement.parked
    ]
    return _Batch(sorted(settlement.sent), sorted(parked), sorted(settlement.given_back))
