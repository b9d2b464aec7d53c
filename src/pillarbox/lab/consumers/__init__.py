"""Every way of consuming that the lab knows: one file each, a small honest program and where it can be struck."""

from __future__ import annotations

from typing import Final, Protocol

from ..planning import Column
from .c0_none import NoIdempotency
from .c1_exists import ExistsFirst
from .c2_inbox import Inbox
from .ca_automatic import Automatic
from .desk import Desk


class Way(Column, Protocol):
    """A way of consuming: a program, and what each window does to it."""

    def run(self, desk: Desk) -> None:
        """Consume until it is told to end."""
        ...


WAYS: Final[tuple[Way, ...]] = (NoIdempotency(), ExistsFirst(), Inbox(), Automatic())
"""In the order of the matrix's columns."""
