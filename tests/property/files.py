"""A broker that several processes share: a file to which messages are appended, each with one write."""

import json
import os
from collections import Counter
from pathlib import Path

from pillarbox.event.message import Message
from pillarbox.ports import Confirmed
from tests.property.broker import Arrival
from tests.property.writers import MADE


class FileBroker:
    """What :class:`tests.property.broker.Broker` is, for processes. A message's offset is where its line begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._calm = path.with_suffix(".calm")
        self._file = os.open(path, os.O_APPEND | os.O_WRONLY | os.O_CREAT)

    @property
    def calm(self) -> bool:
        return self._calm.exists()

    def calm_down(self) -> None:
        self._calm.touch()

    def take(self, relay: str, message: Message) -> Confirmed:
        line = self._write("arrived", message, relay)
        return Confirmed(0, os.lseek(self._file, 0, os.SEEK_CUR) - line)

    def fail(self, message: Message) -> None:
        self._write("failed", message, "")

    def count(self, fault: str) -> None:
        line = json.dumps(["fault", fault]).encode() + b"\n"
        assert os.write(self._file, line) == len(line)

    @property
    def arrivals(self) -> list[Arrival]:
        return [
            Arrival(relay, Message(event_id, "t", 1, None, None, key, MADE, None, "text/plain", b"", place, None), at)
            for at, (kind, relay, event_id, key, place) in self._lines(5)
            if kind == "arrived"
        ]

    @property
    def failed(self) -> set[tuple[str, str]]:
        return {(event_id, place) for _, (kind, _, event_id, _, place) in self._lines(5) if kind == "failed"}

    @property
    def faults(self) -> Counter[str]:
        return Counter(fault for _, (_, fault) in self._lines(2))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, kind: str, message: Message, relay: str) -> int:
        line = json.dumps([kind, relay, message.event_id, message.key, message.destination]).encode() + b"\n"
        assert os.write(self._file, line) == len(line)
        return len(line)

    def _lines(self, parts: int) -> list[tuple[int, list[str]]]:
        found: list[tuple[int, list[str]]] = []
        at = 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            values = json.loads(line)
            if len(values) == parts:
                found.append((at, values))
            at += len(line)
        return found
