"""The embedded log's file by sqlite3 alone: one transaction a batch."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from bench.raw_loop import Position, Row
from pillarbox.embedded import EmbeddedLog, parse_embedded_url
from pillarbox.embedded.murmur2 import partition_of_key

INSERT = "INSERT INTO record (partition_id, position, key, headers, body) VALUES (?, ?, ?, ?, ?)"
PARTITIONS = "SELECT id, next_offset FROM topic_partition WHERE topic = ? ORDER BY number"


class RawEmbedded:
    """The only writer, so that it knows each partition's next offset."""

    def __init__(self, url: str, topic: str) -> None:
        self._rows: Sequence[Row] = ()
        path = parse_embedded_url(url).path
        with EmbeddedLog(path) as log:  # makes the tables; the loop itself uses none of it
            log.create_topic(topic)
        self._connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._ids, self._next = map(list, zip(*self._connection.execute(PARTITIONS, (topic,)), strict=True))

    def start(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def finish(self) -> Sequence[Position]:
        records, positions = [], []
        for row in self._rows:
            (_, _, event_id, kind, version, a_type, a_id, key, occurred_at, _, content_type, payload, *_) = row
            headers = {
                "id": event_id,
                "eventType": kind,
                "schemaVersion": str(version),
                "occurredAt": occurred_at,
                "contentType": content_type,
                "aggregateType": a_type,
                "aggregateId": a_id,
            }
            partition = partition_of_key(key, len(self._ids))
            offset = self._next[partition]
            self._next[partition] = offset + 1
            positions.append((partition, offset))
            records.append((self._ids[partition], offset, key, json.dumps(headers, ensure_ascii=False), payload))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, records)
        ends = list(zip(self._next, self._ids, strict=True))
        self._connection.executemany("UPDATE topic_partition SET next_offset = ? WHERE id = ?", ends)
        self._connection.execute("COMMIT")
        return positions

    def close(self) -> None:
        self._connection.close()
