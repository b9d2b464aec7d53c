"""S3: a hook after the commit that tries for ever. For ever is as long as the process lives."""

from __future__ import annotations

import time

from sqlalchemy import event, insert
from sqlalchemy.orm import Session

from ..alarms import Alarm
from ..grounds.tables import lab_alarm
from ..model import Fail, Kill, LoseAnswer, Outcome, Plan
from ..planning import CONSUMING, NO_LEASE, NO_NETWORK, NO_RELAY, ONE_COMMIT, SENDS_LATER, not_run, planned
from ..points import reach
from .shop import RaiseAlarm, Shop


def program(shop: Shop) -> RaiseAlarm:
    """The session calls the hook once the commit stands; a broker that is away is waited for."""

    def tell(alarm: Alarm) -> None:
        reach("s3.committed")
        while True:
            try:
                shop.sender.send(alarm.event_id, alarm.device, alarm.body, alarm.headers)
            except Exception:  # noqa: BLE001 - that is the strategy: whatever it is, try again
                reach("s3.failed")
                time.sleep(shop.pause)
            else:
                reach("s3.acknowledged")
                return

    def raise_alarm(alarm: Alarm) -> None:
        with Session(shop.engine) as session, session.begin():
            session.execute(insert(lab_alarm).values(alarm.row))
            event.listen(session, "after_commit", lambda _session: tell(alarm), once=True)
            reach("s3.inserted")

    return raise_alarm


class Hook:
    """See the module."""

    id = "S3"
    name = "hook after the commit, tries for ever"
    summary = "INSERT, COMMIT; a hook of the session sends, and repeats until the broker has confirmed."
    needs_relay = False
    transactional = False
    program = staticmethod(program)

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W1":
                return SENDS_LATER
            case "W2":
                why = "Retries are in the memory of a process, and it is dead."
                return planned(Kill("s3.committed"), Outcome.LOSS, why=why)
            case "W3":
                why = "It takes the lost answer for a failure and sends again: for the broker, another message."
                fault = Fail("sender.acknowledged") if broker == "embedded" else LoseAnswer("s3.committed", "broker")
                return planned(fault, Outcome.DUPLICATE, why=why)
            case "B1":
                why = "An open transaction ends with its process, and the hook was never called."
                return planned(Kill("s3.inserted"), why=why)
            case "B2":
                why = "The commit raises an error although it stands, so the hook after it is not called."
                if database == "sqlite":
                    return not_run(Outcome.LOSS, why=why, reason=NO_NETWORK)
                return planned(LoseAnswer("s3.inserted", "database"), Outcome.LOSS, why=why)
            case "W3r":
                return NO_RELAY
            case "B3":
                return NO_LEASE
            case "B4":
                return ONE_COMMIT
            case _:
                return CONSUMING
