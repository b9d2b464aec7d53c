"""Sending into the embedded log: one SQLite transaction each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...embedded import EmbeddedLog, NewRecord, parse_embedded_url
from ...event.destination import Destination
from ..points import reach


class EmbeddedSender:
    """Appends to one topic."""

    def __init__(self, log: EmbeddedLog, topic: str) -> None:
        self._log = log
        self._topic = topic

    def send(self, event_id: str, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Append; on the disk when it returns."""
        self._log.append([NewRecord(self._topic, key, list(headers.items()), body)])
        reach("sender.acknowledged")

    def begin(self) -> None:
        """There is no transaction that could be left open."""
        raise NotImplementedError("the embedded log has no transactions of its own")

    commit = abort = begin

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def open_sender(url: str, destination: Destination, transactional_id: str | None) -> EmbeddedSender:
    """Open the log."""
    log = EmbeddedLog(parse_embedded_url(url).path)
    log.open()
    return EmbeddedSender(log, destination.name)


def settings(*, transactional: bool) -> Mapping[str, Any]:
    """There is nothing to choose."""
    return {
        "client": "pillarbox.embedded",
        "acks": "on the disk (synchronous=FULL)",
        "idempotence": False,
        "retries": 0,
    }
