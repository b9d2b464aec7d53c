"""S4: a Kafka transaction that is synchronised with the database's, database first. Two commits are still two."""

from __future__ import annotations

from sqlalchemy import insert
from sqlalchemy.orm import Session

from ..alarms import Alarm
from ..grounds.tables import lab_alarm
from ..model import CommitFails, Fail, Kill, LoseAnswer, NotRun, Outcome, Plan, Planned
from ..planning import CONSUMING, NO_LEASE, NO_NETWORK, NO_RELAY, not_run, planned
from ..points import reach
from .shop import RaiseAlarm, Shop


def program(shop: Shop) -> RaiseAlarm:
    """As transaction managers do it that are told of each other: begin both, commit the one, then the other."""

    def raise_alarm(alarm: Alarm) -> None:
        shop.sender.begin()
        try:
            with Session(shop.engine) as session, session.begin():
                session.execute(insert(lab_alarm).values(alarm.row))
                shop.sender.send(alarm.event_id, alarm.device, alarm.body, alarm.headers)
                reach("s4.sent")
        except BaseException:
            shop.sender.abort()
            raise
        reach("s4.database-committed")
        shop.sender.commit()
        reach("s4.committed")

    return raise_alarm


class KafkaTransaction:
    """See the module."""

    id = "S4"
    name = "Kafka transaction, database first"
    summary = "Begin both, INSERT and send, COMMIT the database, then commit Kafka's transaction."
    needs_relay = False
    transactional = True
    program = staticmethod(program)

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        plan = self._plan(window)
        if not isinstance(plan, Planned):
            return plan
        if broker != "kafka":
            return NotRun(plan.expected, plan.why, f"Only Kafka has such a transaction; this run is on {broker}.")
        if database == "sqlite" and isinstance(plan.fault, LoseAnswer) and plan.fault.server == "database":
            return not_run(*plan.expected, why=plan.why, reason=NO_NETWORK)
        return plan

    def _plan(self, window: str) -> Plan:
        match window:
            case "W1":
                why = "Kafka's transaction is aborted with the database's; readers of committed records see nothing."
                return planned(Fail("s4.sent"), why=why)
            case "W2":
                why = "The row stands. Kafka's transaction was never committed, and is aborted when its time is up."
                return planned(Kill("s4.database-committed"), Outcome.LOSS, why=why)
            case "W3":
                why = "Both have it: Kafka's commit stands, and only its answer is lost."
                return planned(LoseAnswer("s4.database-committed", "broker"), why=why)
            case "B1":
                why = "Neither was committed, and both end with the process."
                return planned(Kill("s4.sent"), why=why)
            case "B2":
                why = "The database's commit raises an error although it stands, so Kafka's transaction is aborted."
                return planned(LoseAnswer("s4.sent", "database"), Outcome.LOSS, why=why)
            case "B4":
                why = "The database's commit cannot be taken back when Kafka's fails behind it."
                return planned(CommitFails("s4.database-committed"), Outcome.LOSS, why=why)
            case "W3r":
                return NO_RELAY
            case "B3":
                return NO_LEASE
            case _:
                return CONSUMING
