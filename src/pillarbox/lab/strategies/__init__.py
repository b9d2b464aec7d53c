"""Every way of sending that the lab knows: one file each, a small honest program and where it can be struck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ..planning import Column
from .s1_inside import Inside
from .s2_after import After
from .s3_hook import Hook
from .s4_kafka_transaction import KafkaTransaction
from .s5_outbox import OutboxByPolling
from .s6_cdc import OutboxByCapture
from .shop import RaiseAlarm, Shop


class Listed(Column, Protocol):
    """A way of sending, as the matrix has it."""

    needs_relay: bool


class Runnable(Listed, Protocol):
    """A way of sending with a program. ``transactional``: its client begins and commits transactions of the broker."""

    transactional: bool

    @property
    def program(self) -> Callable[[Shop], RaiseAlarm]:
        """Given what it works with, the function that serves a request."""
        ...


_WITH_PROGRAM: Final[tuple[Runnable, ...]] = (
    Inside(),
    After(),
    Hook(),
    KafkaTransaction(),
    OutboxByPolling("row"),
    OutboxByPolling("partition"),
)

STRATEGIES: Final[tuple[Listed, ...]] = (*_WITH_PROGRAM, OutboxByCapture())
"""In the order of the matrix's columns."""

RUNNABLE: Final = {one.id: one for one in _WITH_PROGRAM}
"""By id; what is listed and has no program is not among them."""
