"""S2: send after the commit. Between the two lines the process may die, and nothing remembers what was to be sent."""

from __future__ import annotations

from sqlalchemy import insert
from sqlalchemy.orm import Session

from ..alarms import Alarm
from ..grounds.tables import lab_alarm
from ..model import Fail, Kill, LoseAnswer, Outcome, Plan
from ..planning import CONSUMING, NO_LEASE, NO_NETWORK, NO_RELAY, ONE_COMMIT, SENDS_LATER, not_run, planned
from ..points import reach
from .shop import RaiseAlarm, Shop


def program(shop: Shop) -> RaiseAlarm:
    """First the one, then the other."""

    def raise_alarm(alarm: Alarm) -> None:
        with Session(shop.engine) as session, session.begin():
            session.execute(insert(lab_alarm).values(alarm.row))
            reach("s2.inserted")
        reach("s2.committed")
        shop.sender.send(alarm.event_id, alarm.device, alarm.body, alarm.headers)
        reach("s2.acknowledged")

    return raise_alarm


class After:
    """See the module."""

    id = "S2"
    name = "send after the commit"
    summary = "INSERT, COMMIT, then send and wait for the broker's confirmation."
    needs_relay = False
    transactional = False
    program = staticmethod(program)

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W1":
                return SENDS_LATER
            case "W2":
                why = "The row stands, and that it was to be told was only in the dead process's memory."
                return planned(Kill("s2.committed"), Outcome.LOSS, why=why)
            case "W3":
                why = "Both have it, and the program does not know. If it sent again, it would be told twice."
                fault = Fail("sender.acknowledged") if broker == "embedded" else LoseAnswer("s2.committed", "broker")
                return planned(fault, why=why)
            case "B1":
                why = "An open transaction ends with its process, and nothing was sent."
                return planned(Kill("s2.inserted"), why=why)
            case "B2":
                why = "The commit raises an error although it stands, so the line that sends is never reached."
                if database == "sqlite":
                    return not_run(Outcome.LOSS, why=why, reason=NO_NETWORK)
                return planned(LoseAnswer("s2.inserted", "database"), Outcome.LOSS, why=why)
            case "W3r":
                return NO_RELAY
            case "B3":
                return NO_LEASE
            case "B4":
                return ONE_COMMIT
            case _:
                return CONSUMING
