"""S6: the outbox, read from the database's log (change data capture). Not part of this release: shown, not run."""

from __future__ import annotations

from typing import Final

from ..model import Impossible, Outcome, Plan
from ..planning import CONSUMING, ONE_COMMIT, not_run

_REASON: Final = "This release has no relay that reads the database's log."
_TWICE: Final = "The connector goes on from where it noted last, and sends again what it had sent since."


class OutboxByCapture:
    """See the module."""

    id = "S6"
    name = "outbox by change data capture"
    summary = "INSERT alarm and event, COMMIT; a connector reads the database's log and sends."
    needs_relay = True
    transactional = False

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """What is expected of it; nothing runs."""
        match window:
            case "W1" | "B1":
                return not_run(why="The log has only what was committed.", reason=_REASON)
            case "W2" | "B2":
                return not_run(why="What is committed is in the log, whoever is dead.", reason=_REASON)
            case "W3" | "W3r":
                return not_run(Outcome.DUPLICATE, why=_TWICE, reason=_REASON)
            case "B3":
                return Impossible("A connector holds no lease on rows; Kafka Connect sees to it that one task runs.")
            case "B4":
                return ONE_COMMIT
            case _:
                return CONSUMING
