"""What a publisher knows about one message after it tried to send it."""

from __future__ import annotations

from typing import NamedTuple


class Confirmed(NamedTuple):
    """The broker has it at the strongest level asked for. RabbitMQ has no partition and offset, a NATS stream no
    partition."""

    partition: int | None = None
    offset: int | None = None


class Rejected(NamedTuple):
    """The broker (or its client) refused this very message, and said why. It is not in the broker.

    ``permanent``: trying again cannot help (too large, unroutable, not authorised). ``of_destination``: it would
    refuse every message for this destination (no such topic or exchange).
    """

    reason: str
    permanent: bool
    of_destination: bool = False


class Unavailable(NamedTuple):
    """It was not sent, because the broker or this destination could not be reached. Nobody's fault but the outage's.

    ``broker_answers`` True: only this destination is in trouble, and events for others may go on.
    """

    reason: str
    broker_answers: bool = False


class Unknown(NamedTuple):
    """It was sent and no answer came: the broker may have it.

    ``destination_healthy`` False: the destination itself is in trouble (no leader, too few replicas, connection
    lost), so that the event is not charged with a failed attempt. ``broker_answers`` True: it is only this destination.
    """

    reason: str
    destination_healthy: bool
    broker_answers: bool = False


class Withheld(NamedTuple):
    """It was not sent, because an earlier message of its stream was not confirmed, or because time ran out while the
    broker was still confirming others. Only where order is asked for."""

    reason: str


Outcome = Confirmed | Rejected | Unavailable | Unknown | Withheld
