"""Dead letters in the embedded log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...embedded import EmbeddedLog, NewRecord, Record, parse_embedded_url
from ...errors import SourceMissing
from ..dead import REPLAYED, dead_name, without_dead_headers
from ..retries import retry_name
from .copies import headers_again, note_headers
from .letters import Letter, Order


class EmbeddedBox:
    """The topic ``<source>.<consumer>.dead``; letters that went back are noted in it by records without body."""

    def __init__(self, log: EmbeddedLog, consumer: str, source: str) -> None:
        self._log = log
        self._dead = dead_name(source, consumer)
        self._retry = retry_name(source, consumer)

    @classmethod
    def from_url(cls, url: str, consumer: str, source: str, *, deadline: float = 10.0) -> EmbeddedBox:
        """Make one from ``embedded:///absolute/path`` or ``embedded:relative``."""
        path = parse_embedded_url(url).path
        if not Path(path).exists():  # and a look is not to make it
            raise SourceMissing(f"There is no embedded log at {path}.", fix="Check the path in the broker's URL.")
        return cls(EmbeddedLog(path, busy_timeout=deadline), consumer, source)

    def open(self) -> None:
        """Open the file. SourceMissing (PB-042) when the consumer has given up nothing yet."""
        if self._dead not in self._log.topics():
            raise SourceMissing(
                f"The log has no topic {self._dead!r}: nothing was given up, or the names are wrong.",
                fix="Check the names of consumer and source, and the log's path.",
            )

    def letters(self) -> Iterator[Letter]:
        """Those that were not replayed, the oldest first."""
        records = self._log.records(self._dead)
        gone = {record.headers[REPLAYED] for record in records if REPLAYED in record.headers}
        letters = [_letter(record) for record in records if REPLAYED not in record.headers]
        yield from sorted((one for one in letters if one.place not in gone), key=lambda one: one.given_up_at)

    def send(self, letter: Letter, order: Order) -> None:
        """Append a copy to the consumer's retry topic."""
        assert isinstance(letter.handle, Record)
        headers = {**without_dead_headers(letter.headers), **dict(headers_again(letter, order))}
        copy = NewRecord(self._retry, letter.key, list(headers.items()), letter.handle.body)
        self._log.create_topic(self._retry, 1)
        self._log.append([copy])

    def remove(self, letter: Letter, order: Order) -> None:
        """Append the note."""
        self._log.append([NewRecord(self._dead, letter.key, note_headers(letter, order), b"")])

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def _letter(record: Record) -> Letter:
    return Letter(f"{record.partition}/{record.offset}", record.key, record.headers, len(record.body), record)
