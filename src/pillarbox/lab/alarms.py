"""What happens in the lab: a device raises an alarm, the shop's database keeps it, and others are to be told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from ..event.codec import as_utc_text
from ..event.event import Event
from ..event.types import event_type

ALARM_RAISED: Final = "lab.alarm-raised"


@event_type(ALARM_RAISED, version=1)
@dataclass(frozen=True, slots=True)
class AlarmRaised:
    """What consumers are told."""

    device: str
    celsius: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm. ``event_id`` is the id of the event that must tell of it, and the key of its row."""

    event_id: str
    device: str
    celsius: int

    @property
    def row(self) -> dict[str, object]:
        """For the table ``lab_alarm``."""
        return {"event_id": self.event_id, "device": self.device}

    @property
    def body(self) -> bytes:
        """The message's body."""
        return json.dumps({"device": self.device, "celsius": self.celsius}, separators=(",", ":")).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The message's headers as an outbox sends them, so that every consumer reads every way's messages."""
        return {
            "id": self.event_id,
            "eventType": ALARM_RAISED,
            "schemaVersion": "1",
            "occurredAt": as_utc_text(datetime.now(UTC)),
            "contentType": "application/json",
            "aggregateType": "device",
            "aggregateId": self.device,
        }

    @property
    def event(self) -> Event[AlarmRaised]:
        """The same for ``Outbox.add``."""
        return Event(AlarmRaised(self.device, self.celsius), aggregate=("device", self.device), id=UUID(self.event_id))
