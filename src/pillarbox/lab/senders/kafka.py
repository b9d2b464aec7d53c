"""Sending to Kafka with confluent-kafka, set as carefully as it can be: acks=all, idempotent, each report awaited."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, libversion, version

from ...event.destination import Destination
from ...publish.kafka.url import parse_kafka_url
from ..points import reach

DELIVERY: Final = 1.5
"""Seconds within which the client itself repeats and gives up. Short: the lab waits for it in every round."""

_DEADLINE: Final = 10.0
_OWN: Final = {
    "linger.ms": 0,
    "request.timeout.ms": 1_000,
    "message.timeout.ms": int(DELIVERY * 1_000),
    "statistics.interval.ms": 50,
}


class KafkaSender:
    """One producer. With a transactional id it is transactional, and its predecessor's open transaction is aborted."""

    def __init__(self, config: Mapping[str, Any], topic: str, *, transactional: bool) -> None:
        self._topic = topic
        self._state = ""
        self._producer = Producer({**config, "stats_cb": self._note_state})
        if transactional:
            self._producer.init_transactions(_DEADLINE)
        else:
            self._producer.list_topics(topic, timeout=_DEADLINE)
            self._await_identity()

    def send(self, event_id: str, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Produce, and wait for the delivery report. Raises KafkaException when it says no, or does not come."""
        reports: list[KafkaError | None] = []
        self._producer.produce(
            self._topic,
            body,
            key,
            headers={name: value.encode() for name, value in headers.items()},
            on_delivery=lambda error, _message: reports.append(error),
        )
        end = time.monotonic() + _DEADLINE
        while not reports and time.monotonic() < end:
            self._producer.poll(0.05)
        if not reports or reports[0] is not None:
            raise KafkaException(reports[0] if reports else KafkaError(KafkaError._TIMED_OUT))
        reach("sender.acknowledged")

    def begin(self) -> None:
        """Begin Kafka's transaction."""
        self._producer.begin_transaction()

    def commit(self) -> None:
        """Commit it; raises KafkaException when it cannot be committed or no answer comes."""
        self._producer.commit_transaction(DELIVERY)
        reach("sender.committed")

    def abort(self) -> None:
        """Abort it."""
        self._producer.abort_transaction(_DEADLINE)

    def close(self) -> None:
        """Drop what is left."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _note_state(self, statistics: str) -> None:
        self._state = json.loads(statistics).get("eos", {}).get("idemp_state", "")

    def _await_identity(self) -> None:
        """An idempotent producer sends nothing before it has its id: without it, a link that loses answers would lose
        the id's, too, and the message would never be sent."""
        end = time.monotonic() + _DEADLINE
        while self._state != "Assigned":
            if time.monotonic() > end:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            self._producer.poll(0.05)


def fence(url: str, transactional_id: str) -> None:
    """Take the transactional id away from whoever has it: the broker refuses that producer's commit from now on."""
    thief = Producer({**parse_kafka_url(url, deadline=DELIVERY).config, "transactional.id": transactional_id})
    thief.init_transactions(_DEADLINE)


def open_sender(url: str, destination: Destination, transactional_id: str | None) -> KafkaSender:
    """Connect, and wait until the producer has its identity."""
    config = {**parse_kafka_url(url, deadline=DELIVERY).config, **_OWN}
    if transactional_id is not None:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": 10_000}
    return KafkaSender(config, destination.name, transactional=transactional_id is not None)


def settings(*, transactional: bool) -> Mapping[str, Any]:
    """What the producer is asked for."""
    return {
        "client": f"confluent-kafka {version()[0]}, librdkafka {libversion()[0]}",
        "acks": "all",
        "idempotence": True,
        "retries": f"by the client, within {DELIVERY:g} s",
        "max_in_flight": 5,
        "transactions": transactional,
    }
