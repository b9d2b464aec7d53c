"""Making the consuming client, and looking at what there is before it subscribes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException

from ...errors import AccessRefused, BadUrl, BrokerUnavailable, SourceMissing
from ...publish.kafka.client import Client as ProducerClient
from ...publish.kafka.url import KafkaUrl
from .settings import Fetching, consumer_config

_log = logging.getLogger("pillarbox.consume.kafka")

MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
NEW_TOPIC_SECONDS: Final = 2.0
"""A topic that was made a moment ago is not known to every broker at once."""
_PAUSE: Final = 0.1


def make_client(url: KafkaUrl, consumer: str, fetching: Fetching, callbacks: Mapping[str, Any]) -> Client:
    """The consuming client; BadUrl (PB-002) for an option that it does not know. Nothing is connected yet."""
    try:
        return Client(consumer_config(url, consumer, fetching, callbacks), logger=_log)
    except KafkaException as error:
        raise BadUrl(
            f"{url.shown}: {error.args[0].str()}.", fix="Correct the option; options are those of librdkafka."
        ) from error


def topics_there(producers: ProducerClient, url: KafkaUrl, sources: Sequence[str], deadline: float) -> set[str]:
    """The names of all topics, ``sources`` among them. Raises SourceMissing (PB-042), BrokerUnavailable (PB-005), and
    AccessRefused (PB-008) for one of ``sources``."""
    until = time.monotonic() + NEW_TOPIC_SECONDS
    while True:
        there = _existing_topics(producers, url, sources, deadline)
        missing = [name for name in sources if name not in there]
        if not missing:
            return there
        if time.monotonic() > until:
            raise SourceMissing(f"Kafka at {url.shown} has no topic {missing[0]!r}.")
        time.sleep(_PAUSE)


def _existing_topics(producers: ProducerClient, url: KafkaUrl, sources: Sequence[str], deadline: float) -> set[str]:
    # All topics, because asking for one by name may create it (auto.create.topics.enable).
    try:
        topics = producers.admin().list_topics(timeout=deadline).topics
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka at {url.shown} does not answer: {error.args[0].str()}.") from error
    for name in sources:
        refused = topics[name].error if name in topics else None
        if refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise AccessRefused(f"Kafka at {url.shown} refused access to the topic {name!r}.")
    return {name for name, topic in topics.items() if topic.error is None or topic.error.code() not in MISSING}
