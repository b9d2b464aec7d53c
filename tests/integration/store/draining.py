"""One relay process of the many in test_processes.py: imported by a process that knows nothing else."""

import time

from pillarbox.ports import Sent, Settlement
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.store.tokens import Tokens


def ready() -> None:
    """Only shows that the process is up."""


def drain(url: str, name: str, batch: int, skew: float) -> list[tuple[str, str]]:
    """Claim and settle until nothing is left; returns (event id, claimer). This process's clock is ``skew`` s wrong."""
    store = RowLeaseStore(
        relay_engine(url),
        relay_id=name,
        lease=60.0,
        tokens=Tokens(lambda: time.time_ns() + round(skew * 1_000_000_000)),
    )
    taken: list[tuple[str, str]] = []
    while (claim := store.claim(batch)).deliveries:
        taken += [(one.message.event_id, name) for one in claim.deliveries]
        settled = store.settle(Settlement(claim.token, [Sent(one.key, 0, one.key.id) for one in claim.deliveries]))
        assert settled.sent == len(claim.deliveries), settled
    store.close()
    return taken
