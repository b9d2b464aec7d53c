"""Kafka by confluent-kafka alone, with the product's durability: acks=all, idempotent, each report awaited."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from bench.raw_loop import Position, Row

DEADLINE = 20.0
NOWHERE = (None, None)


class RawKafka:
    """One producer. The callbacks are made once and used again for every batch: a closure per message costs."""

    def __init__(self, bootstrap: str, batch: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 50,  # flush() ends it; shorter, a slow hand-over is cut into many small requests
                "partitioner": "murmur2_random",
                "message.timeout.ms": int(DEADLINE * 1000),
            }
        )
        self._producer.list_topics(timeout=DEADLINE)
        self._positions: list[Position] = [NOWHERE] * batch
        self._reports = [self._report_to(slot) for slot in range(batch)]
        self._left = 0

    def publish(self, rows: Sequence[Row]) -> Sequence[Position]:
        produce = self._producer.produce
        self._left = len(rows)
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
        self._producer.flush(DEADLINE)
        if self._left:
            raise RuntimeError(f"{self._left} of {len(rows)} messages were not confirmed")
        return self._positions[: len(rows)]

    def close(self) -> None:
        self._producer.flush(DEADLINE)

    def _report_to(self, slot: int) -> Callable[[KafkaError | None, Message], None]:
        positions = self._positions

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                positions[slot] = (message.partition(), message.offset())
                self._left -= 1

        return report
