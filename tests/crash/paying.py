"""One delivery of a payment event, in a process that may be killed at a named point.

``python -m tests.crash.paying`` reads deliveries as JSON lines and forks a process for each: it prints the process's
number, and then how that ended (0: applied, or was before; 3: set aside, because its effect is in doubt; -9: killed).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from pillarbox import faultpoints
from pillarbox.effects import ASK, SAME_KEY, EffectInDoubt, Effects, InDoubt, Lookup
from pillarbox.inbox import Inbox
from pillarbox.store.engines import relay_engine
from tests.payment_server import Bank

SET_ASIDE = 3


@dataclass(frozen=True)
class Delivery:
    """``database`` of the handler, ``effects`` the database of the effects, ``bank`` the provider's URL."""

    database: str
    effects: str
    bank: str
    event_id: str
    in_doubt: str
    kill_at: str = ""
    hold: bool = False

    def as_text(self) -> str:
        return json.dumps(asdict(self))


def deliver(delivery: Delivery) -> int:
    """What a consumer does with one message."""
    bank = Bank(delivery.bank)
    policy: dict[str, InDoubt] = {
        "same key": SAME_KEY,
        "lookup": Lookup(lambda _key: bank.find(delivery.event_id), wait=0.0),
        "ask": ASK,
    }
    engine = relay_engine(delivery.database)
    effects = Effects("billing", engine if delivery.effects == delivery.database else delivery.effects)
    faultpoints.attach(lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == delivery.kill_at else None)
    try:
        with Session(engine) as session, session.begin():
            if not Inbox("billing").once(session, delivery.event_id):
                return 0
            receipt = effects.call(
                delivery.event_id,
                "charge",
                lambda key: bank.charge(delivery.event_id, key, hold=delivery.hold),
                in_doubt=policy[delivery.in_doubt],
            )
            row = {"event": delivery.event_id, "receipt": receipt["id"]}
            session.execute(text("INSERT INTO paid (event_id, receipt) VALUES (:event, :receipt)"), row)
            faultpoints.reach("consumer.after-handler")
    except EffectInDoubt:
        return SET_ASIDE
    faultpoints.reach("consumer.after-commit")
    return 0


def main() -> None:
    """Fork before anything is connected: importing all of it takes longer than a delivery."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(deliver(Delivery(**json.loads(line))))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
