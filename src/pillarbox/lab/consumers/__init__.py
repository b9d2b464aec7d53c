"""Every way of consuming that the lab knows: one file each, a small honest program and where it can be struck."""

from __future__ import annotations

from typing import Final, Protocol

from ..model import Plan
from .c0_none import NoIdempotency
from .c1_exists import ExistsFirst
from .c2_inbox import Inbox
from .ca_automatic import Automatic
from .desk import Desk


class Way(Protocol):
    """A way of consuming: a program, and what each window does to it."""

    id: str
    name: str
    summary: str

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is, and what comes of it."""
        ...

    def run(self, desk: Desk) -> None:
        """Consume until it is told to end."""
        ...


WAYS: Final[tuple[Way, ...]] = (NoIdempotency(), ExistsFirst(), Inbox(), Automatic())
"""In the order of the matrix's columns."""
