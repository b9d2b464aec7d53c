"""Reading from the embedded log: a group whose members lease its partitions in the file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from ..embedded import DEFAULT_PARTITIONS, EmbeddedLog, NewRecord, Record, parse_embedded_url
from ..errors import BrokerUnavailable, PillarboxError
from ..ports import Incoming
from .dead import dead_headers, dead_name

_log = logging.getLogger("pillarbox.consume.embedded")


class EmbeddedSource:
    """Topics of the log at ``embedded:///path``, created where missing.

    ``lease`` (seconds) is how long the partitions of a killed consumer stay blocked. A thread renews it, so that a
    handler may take longer.
    """

    def __init__(self, log: EmbeddedLog, consumer: str, sources: Sequence[str], *, lease: float) -> None:
        self._embedded = log
        self._consumer = consumer
        self._sources = tuple(sources)
        self._lease = lease
        self._closed = threading.Event()
        self._renewer: threading.Thread | None = None

    @classmethod
    def from_url(
        cls, url: str, consumer: str, sources: Sequence[str], *, lease: float = 10.0, busy_timeout: float = 5.0
    ) -> EmbeddedSource:
        """Make one from ``embedded:///absolute/path`` or ``embedded:relative``; ``?partitions=N`` for new topics."""
        place = parse_embedded_url(url)
        partitions = place.partitions or DEFAULT_PARTITIONS
        log = EmbeddedLog(place.path, partitions=partitions, lease=lease, busy_timeout=busy_timeout)
        return cls(log, consumer, sources, lease=lease)

    def open(self) -> None:
        """Join the group. Raises BadUrl, AccessRefused or BrokerUnavailable when the file cannot be used."""
        self._embedded.read(self._consumer, self._sources, 0)
        self._renewer = threading.Thread(target=self._renew, name=f"pillarbox-embedded-{self._consumer}", daemon=True)
        self._renewer.start()

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """The next records of the partitions that this member holds."""
        if limit == 0:
            time.sleep(timeout)
            return []
        try:
            records = self._embedded.read(self._consumer, self._sources, limit, timeout=timeout)
        except BrokerUnavailable as error:
            _log.warning("consumer %s: the log cannot be read: %s", self._consumer, error)
            time.sleep(timeout)
            return []
        return [Incoming(r.topic, r.headers, r.body, r.key, r, redelivered=False) for r in records]

    def holds(self, incoming: Incoming) -> bool:
        """False once the partition was leased to another member."""
        return self._embedded.holds(self._consumer, _record(incoming))

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Move the group's positions; partitions that were lost meanwhile stay where they are."""
        self._embedded.commit(self._consumer, [_record(incoming) for incoming in done])

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Append the record, with the reason, to the dead-letter topic."""
        record = _record(incoming)
        added = dead_headers(
            source=record.topic,
            consumer=self._consumer,
            position=f"{record.partition}/{record.offset}",
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        headers = {**record.headers, **dict(added)}
        name = dead_name(record.topic, self._consumer)
        try:
            self._embedded.append([NewRecord(name, record.key, list(headers.items()), record.body)])
        except PillarboxError as error:
            raise BrokerUnavailable(
                f"The dead letter was not written: {error.message}", fix=error.how_to_fix
            ) from error

    def close(self) -> None:
        """Leave the group and close the file."""
        self._closed.set()
        if self._renewer is not None:
            self._renewer.join(5.0)
        self._embedded.close()

    def _renew(self) -> None:
        while not self._closed.wait(self._lease / 3):
            try:
                self._embedded.renew(self._consumer)
            except PillarboxError as error:  # tried again; without success another member takes over
                _log.warning("consumer %s: the leases could not be renewed: %s", self._consumer, error)


def _record(incoming: Incoming) -> Record:
    assert isinstance(incoming.position, Record)
    return incoming.position
