"""S5: the outbox, by polling. What is to be told is a row beside the alarm; a relay sends it, however long it takes."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import insert
from sqlalchemy.orm import Session

from ...outbox import Outbox
from ..alarms import Alarm
from ..grounds.tables import lab_alarm
from ..model import Fail, Freeze, Kill, LoseAnswer, Outcome, Plan
from ..planning import CONSUMING, NO_NETWORK, ONE_COMMIT, not_run, planned
from ..points import reach
from .shop import RaiseAlarm, Shop


def program(shop: Shop) -> RaiseAlarm:
    """One transaction, one database. The application has no client of the broker."""
    outbox = Outbox(bind=shop.engine)

    def raise_alarm(alarm: Alarm) -> None:
        with Session(shop.engine) as session, session.begin():
            session.execute(insert(lab_alarm).values(alarm.row))
            outbox.add(session, alarm.event, to=shop.destination)
            reach("s5.added")
        reach("s5.committed")

    return raise_alarm


class OutboxByPolling:
    """See the module. ``ownership``: what a relay leases, single rows or partitions of keys."""

    needs_relay = True
    transactional = False
    program = staticmethod(program)

    def __init__(self, ownership: Literal["row", "partition"]) -> None:
        self.ownership = ownership
        self.id = f"S5-{ownership}"
        self.name = f"outbox by polling, {ownership} lease"
        kept = "keeps the order of each key" if ownership == "partition" else "knows no order"
        self.summary = f"INSERT alarm and event, COMMIT; a relay with a lease of {ownership}s sends, and {kept}."

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program or in the relay, and what comes of it."""
        match window:
            case "W1":
                why = "The event is a row of the same transaction; a relay sees it only once it is committed."
                return planned(Fail("s5.added"), why=why)
            case "W2":
                why = "What is to be told was committed with the alarm; the relay needs nothing of the dead process."
                return planned(Kill("s5.committed"), why=why)
            case "W3":
                why = "The relay cannot know and sends again: twice on the wire, once in the inbox."
                if broker == "rabbitmq" and self.ownership == "partition":
                    # Without positions the order of a key is kept by sending its next one behind a confirmation.
                    why += " Of each key only the first was on its way."
                fault = Fail("relay.stored") if broker == "embedded" else LoseAnswer("relay.after-claim", "broker")
                return planned(fault, Outcome.DUPLICATE, why=why)
            case "W3r":
                why = (
                    "What the dead relay knew is gone; the next one sends again: twice on the wire, once in the inbox."
                )
                return planned(Kill("relay.after-confirm"), Outcome.DUPLICATE, why=why)
            case "B1":
                why = "Alarm and event end with the process, both."
                return planned(Kill("s5.added"), why=why)
            case "B2":
                why = "The commit stands, whoever knows of it, and the relay reads what stands."
                if database == "sqlite":
                    return not_run(why=why, reason=NO_NETWORK)
                return planned(LoseAnswer("outbox.before-commit", "database"), why=why)
            case "B3":
                why = "Both relays send, since the first cannot know. Only the second one's settlement counts."
                return planned(Freeze("relay.after-claim"), Outcome.DUPLICATE, why=why)
            case "B4":
                return ONE_COMMIT
            case _:
                return CONSUMING
