"""Publishing into the embedded log: one SQLite transaction per batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..embedded import DEFAULT_PARTITIONS, EmbeddedLog, NewRecord, parse_embedded_url
from ..embedded.file import CommitUnknown
from ..errors import PillarboxError, UsedAfterFork
from ..event.message import Message, to_headers
from ..ports import Confirmed, Outcome, PublisherCapabilities, Rejected, Unavailable, Unknown
from .streams import Gate

DEFAULT_MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""Payloads above it are refused for good. SQLite itself ends at about 1,000,000,000 bytes."""


class EmbeddedPublisher:
    """Appends messages to the log at ``embedded:///path``. The whole batch is on the disk, or nothing of it.

    ``deadline`` (seconds) bounds the wait for another process that holds the file's write lock.
    """

    capabilities = PublisherCapabilities(scheme="embedded", pipelined_order=True, positions=True, headers=True)

    def __init__(self, log: EmbeddedLog, *, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES) -> None:
        self._log = log
        self._max_record_bytes = max_record_bytes

    @classmethod
    def from_url(
        cls, url: str, *, deadline: float, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    ) -> EmbeddedPublisher:
        """Make one from ``embedded:///absolute/path`` or ``embedded:relative``; ``?partitions=N`` for new topics."""
        place = parse_embedded_url(url)
        log = EmbeddedLog(place.path, partitions=place.partitions or DEFAULT_PARTITIONS, busy_timeout=deadline)
        return cls(log, max_record_bytes=max_record_bytes)

    def open(self) -> None:
        """Open the file, creating it where missing."""
        self._log.open()

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Append all that are acceptable in one transaction."""
        return self._publish(messages, [self._refusal(message) for message in messages])

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """The same, without what stands behind a refused one in its stream. A transaction keeps the order by itself."""
        gate = Gate()
        return self._publish(messages, [gate.pass_through(one, self._refusal(one)) for one in messages])

    def _publish(self, messages: Sequence[Message], outcomes: Sequence[Outcome | None]) -> list[Outcome]:
        records = [
            NewRecord(message.destination, message.key, to_headers(message), message.payload)
            for message, refused in zip(messages, outcomes, strict=True)
            if refused is None
        ]
        answers = iter(self._append(records))
        return [next(answers) if refused is None else refused for refused in outcomes]

    def _append(self, records: Sequence[NewRecord]) -> Sequence[Outcome]:
        try:
            return [Confirmed(partition, offset) for partition, offset in self._log.append(records)]
        except UsedAfterFork:
            raise
        except CommitUnknown as error:
            return [Unknown(error.message, destination_healthy=False)] * len(records)
        except PillarboxError as error:  # rolled back: disk full, locked, not writable, damaged
            return [Unavailable(error.message)] * len(records)

    def _refusal(self, message: Message) -> Outcome | None:
        if not message.destination:
            return Rejected("the embedded log needs a topic; the destination's name is empty", permanent=True)
        if len(message.payload) > self._max_record_bytes:
            size = f"{len(message.payload):,} bytes, the limit is {self._max_record_bytes:,}"
            return Rejected(f"too large for the embedded log: {size}", permanent=True)
        return None
