"""C0: no idempotency. What is delivered is done."""

from __future__ import annotations

from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from ..grounds.tables import lab_notification
from ..model import Freeze, Kill, Outcome, Plan
from ..planning import SENDING, planned
from .desk import Desk
from .naive import consume


def handle(engine: Engine, consumer: str, event_id: str) -> None:
    """Notify."""
    with Session(engine) as session, session.begin():
        session.execute(insert(lab_notification).values(consumer=consumer, event_id=event_id))


class NoIdempotency:
    """See the module."""

    id = "C0"
    name = "no idempotency"
    summary = "INSERT the notification, COMMIT, acknowledge."

    def run(self, desk: Desk) -> None:
        """Consume until the desk says that it is enough."""
        consume(desk, "c0", handle)

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W4":
                why = "It was applied and not acknowledged, so it is delivered again, and applied again."
                return planned(Kill("c0.committed"), Outcome.TWICE, why=why)
            case "W4r":
                why = "Both deliveries are applied; nothing tells that they are one event."
                return planned(Freeze("c0.received"), Outcome.TWICE, why=why)
            case _:
                return SENDING
