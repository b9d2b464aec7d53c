"""C1: look first whether it was done. Right for one delivery after the other, wrong for two at once."""

from __future__ import annotations

from sqlalchemy import Engine, exists, insert, select
from sqlalchemy.orm import Session

from ..grounds.tables import lab_notification
from ..model import Freeze, Kill, Outcome, Plan
from ..planning import SENDING, planned
from ..points import reach
from .desk import Desk
from .naive import consume


def handle(engine: Engine, consumer: str, event_id: str) -> None:
    """Notify, unless it was done: between the look and the commit nobody else can see that it is being done."""
    there = (lab_notification.c.consumer == consumer) & (lab_notification.c.event_id == event_id)
    with Session(engine) as session, session.begin():
        if session.scalar(select(exists().where(there))):
            return
        reach("c1.looked")
        session.execute(insert(lab_notification).values(consumer=consumer, event_id=event_id))


class ExistsFirst:
    """See the module."""

    id = "C1"
    name = "SELECT exists() first"
    summary = "Look for the notification; if there is none INSERT it, COMMIT, acknowledge."

    def run(self, desk: Desk) -> None:
        """Consume until the desk says that it is enough."""
        consume(desk, "c1", handle)

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W4":
                why = "It is delivered again, and the look finds what was committed before."
                return planned(Kill("c1.committed"), why=why)
            case "W4r":
                why = "Both look before either has committed, and both find nothing."
                return planned(Freeze("c1.looked"), Outcome.TWICE, why=why)
            case _:
                return SENDING
