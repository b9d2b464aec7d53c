"""Events that the relays have set aside because, by chance, several relays were killed while they sent just these.

That is what protects an outbox from an event that kills every relay that sends it, and to a few innocent events a storm
of random kills looks like that. They are dead letters: kept, shown, and replayed by an operator, which is what happens
here. Dead letters for any other reason are left alone, and are findings.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from ...store.engines import relay_engine
from ...store.inspect import dead_letters
from ...store.replay import replay
from ...store.transactions import Transactions

CRASH_LOOP: Final = "crash-loop"
"""How the reason of such a dead letter begins."""

_BY: Final = "pillarbox lab soak"
_REASON: Final = "its relays were killed at random, not by this event"
_AT_ONCE: Final = 500


def replay_suspects(shop_url: str) -> int:
    """Replay all dead letters that are suspects of a crash loop; returns how many. Raises DatabaseUnavailable."""
    engine = relay_engine(shop_url, pool_size=1)
    try:
        return Transactions(engine).write(_replay)
    finally:
        engine.dispose()


def _replay(connection: Connection) -> int:
    found = dead_letters(connection, limit=_AT_ONCE)
    suspects = [one.event_id for one in found if one.state == "DEAD" and one.error.startswith(CRASH_LOOP)]
    return replay(connection, suspects, by=_BY, reason=_REASON) if suspects else 0
