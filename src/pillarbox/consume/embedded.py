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
from .retries import read_retry_headers, retry_headers, retry_name, without_retry_headers
from .waiting import WaitingRoom

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
        self._retries = {retry_name(source, consumer): source for source in sources}
        # A group of its own, so that reading ahead in it can pause while the others are read on.
        self._retry_group = f"{consumer}.retry"
        self._room = WaitingRoom()
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
        for name in self._retries:
            self._embedded.create_topic(name, 1)
        self._embedded.read(self._consumer, self._sources, 0)
        self._embedded.read(self._retry_group, list(self._retries), 0)
        self._renewer = threading.Thread(target=self._renew, name=f"pillarbox-embedded-{self._consumer}", daemon=True)
        self._renewer.start()

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """The next records of the partitions that this member holds."""
        if limit == 0:
            time.sleep(timeout)
            return []
        try:
            again = self._due_again(limit)
            if len(again) >= limit:
                return again
            wait = 0.0 if again else self._room.next_in(time.time(), timeout)
            records = self._embedded.read(self._consumer, self._sources, limit - len(again), timeout=wait)
        except BrokerUnavailable as error:
            _log.warning("consumer %s: the log cannot be read: %s", self._consumer, error)
            time.sleep(timeout)
            return []
        return again + [Incoming(r.topic, r.headers, r.body, r.key, r, redelivered=False) for r in records]

    def _due_again(self, limit: int) -> list[Incoming]:
        """Messages of the retry topics whose time has come; those read too early wait in memory."""
        now = time.time()
        if not self._room.full:
            for record in self._embedded.read(self._retry_group, list(self._retries), limit):
                waited = read_retry_headers(record.headers)
                headers = without_retry_headers(record.headers)
                source = self._retries[record.topic]
                incoming = Incoming(source, headers, record.body, record.key, record, False, waited.attempts)
                self._room.add(incoming, waited.due)
        return [incoming for incoming in self._room.take(now, limit) if self.holds(incoming)]

    def holds(self, incoming: Incoming) -> bool:
        """False once the partition was leased to another member."""
        record = _record(incoming)
        return self._embedded.holds(self._group_of(record), record)

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Move the groups' positions; partitions that were lost meanwhile stay where they are."""
        records = [_record(incoming) for incoming in done]
        for group in (self._consumer, self._retry_group):
            own = [record for record in records if self._group_of(record) == group]
            if own:
                self._embedded.commit(group, own)

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Append the record, with the reason, to the dead-letter topic."""
        added = dead_headers(
            source=incoming.source,
            consumer=self._consumer,
            position=self._where(incoming),
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        self._append(dead_name(incoming.source, self._consumer), incoming, added, "dead letter")

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        """Append the record to the consumer's retry topic."""
        now = datetime.now(UTC)
        added = retry_headers(
            seconds=seconds, now=now, position=self._where(incoming), reason=reason, attempts=attempts
        )
        self._append(retry_name(incoming.source, self._consumer), incoming, added, "copy for the retry")

    def _append(self, topic: str, incoming: Incoming, added: list[tuple[str, str]], what: str) -> None:
        headers = {**incoming.headers, **dict(added)}
        try:
            self._embedded.append([NewRecord(topic, incoming.key, list(headers.items()), incoming.body)])
        except PillarboxError as error:
            raise BrokerUnavailable(f"The {what} was not written: {error.message}", fix=error.how_to_fix) from error

    def _where(self, incoming: Incoming) -> str:
        """Where the original stood, also for one that comes from the retry topic."""
        record = _record(incoming)
        before = read_retry_headers(record.headers).position if record.topic in self._retries else ""
        return before or f"{record.partition}/{record.offset}"

    def _group_of(self, record: Record) -> str:
        return self._retry_group if record.topic in self._retries else self._consumer

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
                self._embedded.renew(self._retry_group)
            except PillarboxError as error:  # tried again; without success another member takes over
                _log.warning("consumer %s: the leases could not be renewed: %s", self._consumer, error)


def _record(incoming: Incoming) -> Record:
    assert isinstance(incoming.position, Record)
    return incoming.position
