"""Every metric by name, with the sentence that Prometheus shows. ``docs/metrics.md`` has a line for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

RELAY_COUNTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "claimed": "Deliveries taken up for sending",
        "sent": "Deliveries the broker confirmed and the relay recorded",
        "retried": "Failed sends that were charged and will be tried again",
        "postponed": "Deliveries set aside uncharged, because their destination is in trouble",
        "held": "Deliveries set aside behind an earlier one of their key",
        "skipped": "Failed deliveries that later ones of their key did not wait for, by the policy skip",
        "dead": "Deliveries given up",
        "given_back": "Deliveries returned unsent",
        "unknown": "Sends without an answer",
        "lost": "Outcomes refused by the database, because another relay owns the work now",
        "unrecorded": "Outcomes that could not be written in time; these deliveries go out again",
        "came_due": "Deliveries whose wait ended",
        "outages": "Times that the broker or a destination went away",
        "database_errors": "Database calls that failed",
        "renewed": "Leases renewed",
        "vanished": "Deliveries that were gone from the database when they were settled",
        "stragglers": "Deliveries found below the mark where reading begins",
        "acquired": "Partitions taken",
        "released": "Partitions given up in order",
        "partitions_lost": "Partitions found to be another relay's",
        "pruned": "Finished events removed (with retention.by_relay)",
        "crashes_seen": "Partitions taken over from a relay that ended with deliveries on their way",
    }
)
"""Attribute of the relay's counters -> help. Exported as ``pillarbox_relay_<name>_total``."""

NO_COUNTERS: Final = frozenset({"partitions"})
"""What relays keep among their counters though it goes up and down; the gauges show it."""

RELAY_GAUGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "live": "1 while the loop moves",
        "ready": "1 while the relay delivers: loop, database, broker and a share of the work",
        "broker_reachable": "0 while the breaker is open",
        "database_reachable": "0 while the database does not answer",
        "partitions_owned": "Partitions this relay owns (partition lease only)",
        "partitions_entitled": "Its fair share of the partitions (partition lease only)",
        "held_streams": "Keys and destinations whose later events it holds back (partition lease only)",
    }
)
"""Exported as ``pillarbox_relay_<name>``."""

OUTBOX_GAUGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deliveries": "Deliveries that are not sent, by state",
        "oldest_seconds": "Age of the oldest delivery that is neither sent nor given up; 0 when none waits",
        "holds": "Keys and destinations whose later events wait, by reason",
        "relays": "Relays that live, by the database",
        "partitions_unowned": "Partitions that no relay owns (partition lease only)",
        "look_age_seconds": "How old these figures are",
        "look_duration_seconds": "How long the database took to give them",
    }
)
"""Exported as ``pillarbox_outbox_<name>``."""

OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pillarbox_outbox_look_errors_total": "Looks at the backlog that failed",
        "pillarbox_relay_restarts_total": "Times that a relay was started again after it had failed",
        "pillarbox_build_info": "1, with the version as label",
    }
)

STATES: Final = ("READY", "RETRY", "HELD", "SCHEDULED", "DEAD", "BURIED")
HOLDS: Final = ("backoff", "dead", "away", "drain")


def names() -> list[str]:
    """The full name of every metric."""
    return [
        *(f"pillarbox_relay_{name}_total" for name in RELAY_COUNTERS),
        *(f"pillarbox_relay_{name}" for name in RELAY_GAUGES),
        *(f"pillarbox_outbox_{name}" for name in OUTBOX_GAUGES),
        *OTHERS,
    ]
