"""C2: the product's consumer. Mark and effect are one transaction, and the mark is unique."""

from __future__ import annotations

from sqlalchemy import insert
from sqlalchemy.orm import Session

from ...consume import Consumer, Received
from ..alarms import AlarmRaised
from ..grounds.tables import lab_notification
from ..model import Freeze, Kill, Plan
from ..planning import SENDING, planned
from ..points import now_about
from .desk import Desk


def consumer(desk: Desk) -> Consumer:
    """As a user writes it."""
    made = Consumer(
        desk.name,
        database=desk.database,
        broker=desk.broker,
        sources=[desk.source],
        workers=desk.workers,
        ahead=max(desk.limit, desk.workers),
        options=desk.options,
    )

    @made.on(AlarmRaised)
    def notify(event: Received[AlarmRaised], session: Session) -> None:
        now_about(event.id)
        session.execute(insert(lab_notification).values(consumer=desk.name, event_id=event.id))

    return made


class Inbox:
    """See the module."""

    id = "C2"
    name = "inbox"
    summary = "INSERT the mark (consumer, event) and the notification, COMMIT, acknowledge."

    def run(self, desk: Desk) -> None:
        """Consume until it is told to end, then finish what was begun."""
        working = consumer(desk)
        desk.when_told(working.stop)
        working.run()

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W4":
                why = "It is delivered again, and the mark that was committed with the effect refuses it."
                return planned(Kill("consumer.after-commit"), why=why)
            case "W4r":
                if database == "sqlite":
                    why = "SQLite has one writer: the second one waits for the first one's commit, and finds the mark."
                else:
                    why = "The second one's mark waits for the first one's transaction, and is refused when it commits."
                return planned(Freeze("consumer.after-handler"), why=why)
            case _:
                return SENDING
