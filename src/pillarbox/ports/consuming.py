"""What a consumer needs of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Incoming(NamedTuple):
    """One message as a source delivered it. ``position`` is the source's own handle for acknowledging.

    ``attempts``: how often it has failed already, where it comes from the consumer's own retry topic or queue; else 0.
    """

    source: str
    headers: dict[str, str]
    body: bytes
    key: str | None
    position: object
    redelivered: bool
    attempts: int = 0


class Source(Protocol):
    """A subscription to topics or queues of one broker, used by one thread."""

    def open(self) -> None:
        """Connect and subscribe, or raise BrokerUnavailable, AccessRefused, SourceMissing or MissingDriver."""
        ...

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """Up to ``limit`` messages, waiting at most ``timeout`` seconds for the first. Keeps the connection alive.

        ``limit`` 0 delivers nothing and waits the whole ``timeout``. While the broker is away it waits, too, and
        reconnects.
        """
        ...

    def holds(self, incoming: Incoming) -> bool:
        """False once the broker took the message back (partition revoked, channel lost): it comes again."""
        ...

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Tell the broker that these are finished (commit offsets, ack). Called only after the database commit."""
        ...

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Put a copy, with its headers, ``reason`` and ``attempts``, into the dead-letter topic or queue, confirmed.

        The caller acknowledges the original afterwards. Raises BrokerUnavailable when it is not safely there.
        """
        ...

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        """Put a copy into this consumer's own retry topic or queue, confirmed: it comes again after about ``seconds``.

        It comes to this consumer alone, with the same source, key, headers and body, and with these ``attempts``. The
        caller acknowledges the original afterwards. Raises BrokerUnavailable when it is not safely there.
        """
        ...

    def close(self) -> None:
        """Leave the group or cancel the subscription; unacknowledged messages come again elsewhere."""
        ...
