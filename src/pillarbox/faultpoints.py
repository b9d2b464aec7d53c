"""Named points at which a test or a lab may crash or stall the process. Without an attached hook they do nothing.

Each name is ``<part>.<moment>`` and stands once in the code; :data:`POINTS` lists them for tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Hook = Callable[[str], None]

POINTS: Final = (
    "outbox.before-commit",  # events written, the caller's transaction is about to commit
    "outbox.after-commit",  # the caller's transaction has committed
    "relay.after-claim",  # the claim is committed, nothing was sent
    "relay.after-confirm",  # the broker confirmed, nothing is settled
    "relay.after-settle",  # settled and committed
    "prune.handed-over",  # the archive function returned, nothing is removed
    "prune.within",  # events deleted, their receipts not yet, nothing committed
    "prune.after-batch",  # a batch is committed
    "consumer.received",  # the broker delivered a message, nothing is done yet
    "consumer.after-handler",  # handler ran, its transaction is not committed
    "consumer.after-commit",  # effect and mark are committed, the broker has no acknowledgement
    "consumer.after-ack",  # acknowledged
    "dead-letters.sent",  # the copy of a consumer's dead letter is confirmed, the letter is still there
    "effect.before-start",  # the handler calls; nothing is written, nothing was done outside
    "effect.started",  # that it begins is committed, nothing was done outside
    "effect.called",  # it answered, the answer is not kept
    "effect.done",  # the answer is committed
)

_hook: Hook | None = None


def reach(name: str) -> None:
    """Say that the point ``name`` is reached; costs one global look-up when nothing is attached."""
    if _hook is not None:
        _hook(name)


def attach(hook: Hook | None) -> Hook | None:
    """Install ``hook`` (or remove it with None), and return the one before. One per process, by intent."""
    global _hook
    before, _hook = _hook, hook
    return before
