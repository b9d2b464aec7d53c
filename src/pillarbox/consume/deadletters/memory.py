"""Dead letters of the broker in memory."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import SourceMissing
from ..dead import REPLAYED, dead_name, without_dead_headers
from ..memory import MemoryBroker, MemoryRecord
from ..retries import retry_name
from .copies import headers_again, note_headers
from .letters import Letter, Order


class MemoryBox:
    """The topic ``<source>.<consumer>.dead`` of a :class:`~pillarbox.consume.memory.MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, consumer: str, source: str) -> None:
        self._broker = broker
        self._dead = dead_name(source, consumer)
        self._retry = retry_name(source, consumer)

    def open(self) -> None:
        """SourceMissing (PB-042) when nothing was given up yet."""
        if not self._broker.has(self._dead):
            raise SourceMissing(f"There is no topic {self._dead!r}.")

    def letters(self) -> Iterator[Letter]:
        """Those that were not replayed."""
        records = self._broker.records(self._dead)
        gone = {record.headers[REPLAYED] for record in records if REPLAYED in record.headers}
        for number, record in enumerate(records):
            if REPLAYED not in record.headers and str(number) not in gone:
                yield Letter(str(number), record.key, record.headers, len(record.body), record)

    def send(self, letter: Letter, order: Order) -> None:
        """Append a copy to the consumer's retry topic."""
        assert isinstance(letter.handle, MemoryRecord)
        headers = {**without_dead_headers(letter.headers), **dict(headers_again(letter, order))}
        self._broker.publish(self._retry, letter.handle.body, headers, letter.key)

    def remove(self, letter: Letter, order: Order) -> None:
        """Append the note."""
        self._broker.publish(self._dead, b"", dict(note_headers(letter, order)), letter.key)

    def close(self) -> None:
        """Nothing to let go of."""
