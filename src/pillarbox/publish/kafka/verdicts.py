"""What Kafka's error codes mean for an event. By code: ``retriable()`` is False in every delivery report."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from ...ports import Outcome, Rejected, Unavailable, Unknown

TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""Retryable: a topic that is created a minute later needs no replay."""

_REFUSED_FOR_GOOD: Final = TOO_LARGE | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,  # the topic's name is not allowed
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError._KEY_SERIALIZATION,
    KafkaError._VALUE_SERIALIZATION,
}

_NOT_WRITTEN: Final = frozenset(
    {
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._QUEUE_FULL,
    }
)

_TROUBLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        # Broker and producer have lost track of each other, e.g. after a disk lost its tail: no message's fault.
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError._FATAL,
    }
)

PURGED_IN_FLIGHT: Final = KafkaError._PURGE_INFLIGHT

_PURGED: Final = {
    # A message that was sent, failed and waits for the client's retry is purged from the queue like a fresh one, so
    # even this does not prove that the broker has it not.
    KafkaError._PURGE_QUEUE: "not confirmed in time (it was waiting to be sent, perhaps again)",
    PURGED_IN_FLIGHT: "sent and not confirmed in time",
}


def needs_metadata(code: int) -> bool:
    """True when the code leaves open whether the destination is healthy."""
    return code not in _REFUSED_FOR_GOOD and code not in MISSING and code not in _NOT_WRITTEN


_OF_THE_PARTITION: Final = frozenset(
    {
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
"""A broker answered, and its answer concerns one partition."""


def outcome_of(code: int, text: str, *, trouble: str | None = None, broker_answers: bool = False) -> Outcome:
    """The outcome for a delivery report's or produce()'s error.

    ``trouble`` is what the cluster's metadata says is wrong with the topic, None when it is healthy; see
    :mod:`.topics`. ``broker_answers`` says that it was the metadata indeed, and not silence. Codes that are not listed
    leave it open whether the broker has the message.
    """
    if code in _REFUSED_FOR_GOOD:
        return Rejected(text, permanent=True)
    if code in MISSING:
        return Rejected(text, permanent=False, of_destination=True)
    if code in _NOT_WRITTEN:
        return Unavailable(text, broker_answers=code in _OF_THE_PARTITION)
    reason = _PURGED.get(code, text)
    if trouble is not None:
        return Unknown(f"{reason}: {trouble}", destination_healthy=False, broker_answers=broker_answers)
    return Unknown(reason, destination_healthy=code not in _TROUBLE and code != KafkaError._PURGE_QUEUE)
