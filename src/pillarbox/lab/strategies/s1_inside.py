"""S1: send inside the transaction. The database can still take back what the broker will not."""

from __future__ import annotations

from sqlalchemy import insert
from sqlalchemy.orm import Session

from ..alarms import Alarm
from ..grounds.tables import lab_alarm
from ..model import Fail, Impossible, Kill, LoseAnswer, Outcome, Plan
from ..planning import CONSUMING, NO_LEASE, NO_NETWORK, NO_RELAY, ONE_COMMIT, not_run, planned
from ..points import reach
from .shop import RaiseAlarm, Shop


def program(shop: Shop) -> RaiseAlarm:
    """What looks safe, because it stands between the lines of one transaction."""

    def raise_alarm(alarm: Alarm) -> None:
        with Session(shop.engine) as session, session.begin():
            session.execute(insert(lab_alarm).values(alarm.row))
            reach("s1.inserted")
            shop.sender.send(alarm.event_id, alarm.device, alarm.body, alarm.headers)
            reach("s1.acknowledged")
        reach("s1.committed")

    return raise_alarm


class Inside:
    """See the module."""

    id = "S1"
    name = "send inside the transaction"
    summary = "INSERT, send and wait for the broker's confirmation, COMMIT."
    needs_relay = False
    transactional = False
    program = staticmethod(program)

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W1":
                why = "The broker has the message and cannot take it back; the row is rolled back."
                return planned(Fail("s1.acknowledged"), Outcome.GHOST, why=why)
            case "W2":
                return Impossible("It sends before COMMIT: when the database has committed, the message is out.")
            case "W3":
                why = "The client reports an error, so the transaction rolls back; the message is in the broker."
                fault = Fail("sender.acknowledged") if broker == "embedded" else LoseAnswer("s1.inserted", "broker")
                return planned(fault, Outcome.GHOST, why=why)
            case "B1":
                why = "The transaction ends with the process, the message does not."
                return planned(Kill("s1.acknowledged"), Outcome.GHOST, why=why)
            case "B2":
                why = "Both have it. Only the program believes that it failed, and its caller will try again."
                if database == "sqlite":
                    return not_run(why=why, reason=NO_NETWORK)
                return planned(LoseAnswer("s1.acknowledged", "database"), why=why)
            case "W3r":
                return NO_RELAY
            case "B3":
                return NO_LEASE
            case "B4":
                return ONE_COMMIT
            case _:
                return CONSUMING
