"""How long a message can wait on RabbitMQ: queues with one time-to-live each, made when they are first needed.

A time-to-live per message would not do: the broker looks only at the head of a queue, so that one long wait would hold
up all that were put there after it. The step above the wanted time is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

STEPS_MS: Final = (
    *(100, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(minutes * 60_000 for minutes in (1, 2, 5, 10, 20, 30, 60, 120, 240, 480, 720, 1440)),
)
AT_ONCE: Final = 0.03
"""Seconds. Less than that goes to the retry queue directly."""

SAFE_ARGUMENTS: Final[Mapping[str, Any]] = {"x-queue-type": "quorum"}
"""Of the queues for dead letters and retries. A classic queue lives on one node of a cluster: while that is away
nothing can be put there and no consumer that needs it can start; with the node's disk the letters go."""

DELAY_ARGUMENTS: Final[Mapping[str, Any]] = {
    "x-queue-type": "quorum",
    # Without it, the broker passes expired messages on unconfirmed, and one that meets a missing queue or a node that
    # stops is gone. It asks for a quorum queue, and for reject-publish.
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


class Queue(NamedTuple):
    """A durable queue, as it is to be declared."""

    name: str
    arguments: Mapping[str, Any]


_COUNTS_BY_ITSELF: Final = 4
"""From this major version of RabbitMQ on a quorum queue drops what came back 20 times, unless it is told not to."""


def declared(arguments: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The arguments for a broker of this version: what is kept for a person must not be dropped for being looked at.

    >>> declared({"x-queue-type": "quorum"}, "4.1.2")
    {'x-queue-type': 'quorum', 'x-delivery-limit': -1}
    >>> declared({"x-queue-type": "quorum"}, "3.10.8")
    {'x-queue-type': 'quorum'}
    """
    major = version.split(".", 1)[0]
    counts = arguments.get("x-queue-type") == "quorum" and major.isdigit() and int(major) >= _COUNTS_BY_ITSELF
    return {**arguments, **({"x-delivery-limit": -1} if counts and "x-delivery-limit" not in arguments else {})}


def waiting_queue(retry: Queue, seconds: float, arguments: Mapping[str, Any]) -> Queue:
    """Where a message waits about ``seconds``, a day at most, before the broker moves it to the ``retry`` queue.

    >>> waiting_queue(Queue("orders.stock.retry", {}), 3.0, {}).name
    'orders.stock.retry.5000'
    """
    if seconds < AT_ONCE:
        return retry
    step = STEPS_MS[min(bisect_left(STEPS_MS, seconds * 1_000), len(STEPS_MS) - 1)]
    own = {"x-message-ttl": step, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": retry.name}
    return Queue(f"{retry.name}.{step}", {**arguments, **own})
