"""CA: acknowledged before it is handled, as clients do it that acknowledge by themselves."""

from __future__ import annotations

from ..engines import plain_engine
from ..model import Impossible, Kill, Outcome, Plan
from ..planning import SENDING, planned
from ..points import about, reach
from .c0_none import handle
from .desk import Desk
from .readers import open_reader


class Automatic:
    """See the module."""

    id = "CA"
    name = "acknowledged before it is handled"
    summary = "The client acknowledges what it has delivered; then INSERT the notification, COMMIT."

    def run(self, desk: Desk) -> None:
        """Consume until the desk says that it is enough."""
        engine = plain_engine(desk.database, connections=1)
        reader = open_reader(desk, automatic=True)
        while desk.goes_on():
            letters = reader.poll(0.1, desk.limit)
            for letter in letters:
                with about(letter.event_id):
                    reach("ca.acknowledged")
            for letter in letters:
                with about(letter.event_id):
                    handle(engine, desk.name, letter.event_id)
                    reach("ca.committed")
        reader.close()
        engine.dispose()

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        match window:
            case "W4":
                why = "The broker has its acknowledgement and will not deliver it again; nobody has applied it."
                return planned(Kill("ca.acknowledged"), Outcome.SKIPPED, why=why)
            case "W4r":
                return Impossible("What is acknowledged on delivery is not delivered to a second one.")
            case _:
                return SENDING
