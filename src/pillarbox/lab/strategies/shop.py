"""What every strategy is given, and the shape of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine

from ...event.destination import Destination
from ..alarms import Alarm
from ..ports import Sender


@dataclass(frozen=True, slots=True)
class Shop:
    """The application's database, its client of the broker, and where its messages go.

    ``pause``: seconds between attempts, for who tries again.
    """

    engine: Engine
    sender: Sender
    destination: Destination
    pause: float = 0.05


RaiseAlarm = Callable[[Alarm], None]
"""Serves one request: keep the alarm and see to it that others are told. Its errors end the request."""
