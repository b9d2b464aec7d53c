"""Kafka by confluent-kafka alone, with the product's durability: acks=all, idempotent, each report awaited.

The client's own time-out is off, as it must be where order counts: a message that expires is overtaken by later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from bench.raw_loop import Position, Row

DEADLINE = 20.0
NOWHERE = (None, None)


class RawKafka:
    """One producer. The callbacks are made once and used again for every batch: a closure per message costs."""

    def __init__(self, bootstrap: str, batch: int, linger_ms: float = 5) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "linger.ms": linger_ms,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 0,
                "log_level": 2,
            }
        )
        self._producer.list_topics(timeout=DEADLINE)
        self._positions: list[Position] = [NOWHERE] * batch
        self._reports = [self._report_to(slot) for slot in range(batch)]
        self._left = self._count = 0

    def start(self, rows: Sequence[Row]) -> None:
        produce = self._producer.produce
        self._left = self._count = len(rows)
        for report, row in zip(self._reports, rows, strict=False):
            (_, _, event_id, kind, version, a_type, a_id, key, occurred_at, _, content_type, payload, topic, *_) = row
            headers = [
                ("id", event_id),
                ("eventType", kind),
                ("schemaVersion", str(version)),
                ("occurredAt", occurred_at),
                ("contentType", content_type),
                ("aggregateType", a_type),
                ("aggregateId", a_id),
            ]
            produce(topic, payload, key, on_delivery=report, headers=headers)

    def finish(self) -> Sequence[Position]:
        self._producer.flush(DEADLINE)
        if self._left:
            raise RuntimeError(f"{self._left} of {self._count} messages were not confirmed")
        return self._positions[: self._count]

    def close(self) -> None:
        self._producer.flush(DEADLINE)

    def _report_to(self, slot: int) -> Callable[[KafkaError | None, Message], None]:
        positions = self._positions

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                positions[slot] = (message.partition(), message.offset())
                self._left -= 1

        return report
