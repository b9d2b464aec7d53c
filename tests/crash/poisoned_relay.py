"""``python -m tests.crash.poisoned_relay DATABASE BROKER LEASE COUNT``: relays that an event with the payload
``poison`` kills with SIGKILL while it is sent, and a supervisor that starts each again.

It says ``died`` on its standard output for each death, and ends when its standard input does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

from pillarbox.event.message import Message
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Outcome, Rejected, Withheld
from pillarbox.publish.embedded import EmbeddedPublisher
from pillarbox.publish.registry import make_publisher
from pillarbox.relay import OrderedRelay, RelaySettings
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore


class Poisoned(EmbeddedPublisher):
    """``poison`` kills. With ``harmless`` it is refused instead, and comes back as an event to be tried again."""

    harmless = False

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """See ports.Publisher."""
        poison = [one for one in messages if one.payload == b"poison"]
        if poison and not self.harmless:
            os.kill(os.getpid(), signal.SIGKILL)
        if not poison:
            return super().publish_in_order(messages)
        keys = {one.key for one in poison}
        behind = [Withheld("behind") if one.key in keys else None for one in messages]
        sent = iter(super().publish_in_order([one for one in messages if one.key not in keys]))
        refused = Rejected("not yet", permanent=False)
        return [refused if m in poison else waits or next(sent) for m, waits in zip(messages, behind, strict=True)]


def relay(database: str, broker: str, lease: float, name: str, *, harmless: bool = False) -> OrderedRelay:
    """One that waits for no lease longer than it must."""
    publisher = make_publisher(broker, deadline=lease / 3)
    assert isinstance(publisher, EmbeddedPublisher)
    poisoned = Poisoned(publisher._log)
    poisoned.harmless = harmless
    settings = RelaySettings(
        lease=lease, broker_deadline=lease / 3, retry=RetryPolicy(0.05, 0.1, 1_000), poll_max=0.1, due_interval=0.05
    )
    return OrderedRelay(PartitionStore(relay_engine(database), relay_id=name, lease=lease), poisoned, settings)


def main(database: str, broker: str, lease: str, count: str) -> None:
    """Forks: what is imported stays so, and a new life costs milliseconds."""
    lives = 0
    children: set[int] = set()

    def spawn() -> None:
        nonlocal lives
        lives += 1
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            relay(database, broker, float(lease), f"life-{lives}").run()
            os._exit(0)
        children.add(child)

    def end() -> None:
        sys.stdin.read()
        for child in list(children):
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    for _ in range(int(count)):
        spawn()
    threading.Thread(target=end, daemon=True).start()
    while True:
        child, _ = os.wait()
        children.discard(child)
        print("died", flush=True)
        spawn()


if __name__ == "__main__":
    main(*sys.argv[1:])
