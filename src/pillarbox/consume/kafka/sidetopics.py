"""A consumer's own topics beside its sources: dead letters and retries.

Created where missing, and written with every replica's acknowledgement.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ...errors import AccessRefused, BadConsumer, BrokerUnavailable
from ...publish.kafka.client import Client
from ...publish.kafka.url import KafkaUrl
from .records import Headers

_log = logging.getLogger("pillarbox.consume.kafka")

MAX_TOPIC_NAME: Final = 249

_SETTINGS: Final = {
    "cleanup.policy": "delete",
    # A dead letter waits for a person and a retry for its consumer, however long that takes. What is done with of the
    # retries is deleted by the consumer (see purging).
    "retention.ms": "-1",
    # The copy is larger than the original by its reason; a source's limit would refuse what just fitted there.
    "max.message.bytes": "104857600",
}
_BROKERS_DEFAULT: Final = -1
_BY_KEY: Final = -1
_ONE_BROKER: Final = 2.0
_PAUSE: Final = 0.05
"""Seconds: for an answer of one broker, and before it is asked again."""
_REFUSED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class SideTopics:
    """Writes copies one at a time. ``deadline`` (seconds) bounds each."""

    def __init__(self, url: KafkaUrl, client: Client, *, deadline: float) -> None:
        self._url = url
        self._client = client
        self._deadline = deadline

    def create(self, missing: Sequence[str]) -> None:
        """Create these topics, one partition each, replicated as the cluster does by default; existing ones stay."""
        for name in missing:
            if len(name) > MAX_TOPIC_NAME:
                raise BadConsumer(
                    f"The topic's name {name!r} is longer than {MAX_TOPIC_NAME} characters.",
                    fix="Shorten the consumer's name.",
                )
        topics = [NewTopic(name, 1, _BROKERS_DEFAULT, config=_SETTINGS) for name in missing]
        if not topics:
            return
        made = self._client.admin().create_topics(topics, operation_timeout=self._deadline)
        for name, future in made.items():
            try:
                future.result(self._deadline + 5)
            except KafkaException as error:
                self._judge(name, error.args[0])
            except TimeoutError as error:
                raise BrokerUnavailable(f"The topic {name!r} was not created in time.") from error

    def put(self, name: str, key: bytes | None, body: bytes | None, headers: Headers, partition: int = _BY_KEY) -> None:
        """Return when all replicas in sync have it; raises BrokerUnavailable when that is not certain in time."""
        producer = self._client.producer("alone")
        reports: list[KafkaError | None] = []

        def report(error: KafkaError | None, _message: Message) -> None:
            reports.append(error)

        try:
            producer.produce(name, body, key, partition, headers=headers, on_delivery=report)
            until = time.monotonic() + self._deadline
            while not reports and time.monotonic() < until:
                producer.poll(0.1)
        except (KafkaException, BufferError) as error:
            raise BrokerUnavailable(f"The topic {name!r} did not take it: {error}.") from error
        if not reports:
            producer.purge()  # it must not arrive later, unnoticed and out of turn
            self._client.discard("alone")
            raise BrokerUnavailable(f"The topic {name!r} did not confirm within {self._deadline:g} s.")
        if reports[0] is not None:
            raise BrokerUnavailable(f"The topic {name!r} did not take it: {reports[0].str()}.")

    def wait_until_known(self, names: set[str]) -> None:
        """Until every broker that answers knows the topics, at most the deadline.

        A group whose leader asks one that does not know a topic yet gives the topic to nobody, and the client has no
        reason to ask again.
        """
        until = time.monotonic() + self._deadline
        try:
            brokers = self._client.admin().list_topics(timeout=self._deadline).brokers.values()
            for broker in brokers:
                alone = AdminClient(
                    {**self._url.config, "bootstrap.servers": f"{broker.host}:{broker.port}"}, logger=_log
                )
                while not self._knows(alone, names) and time.monotonic() < until:
                    time.sleep(_PAUSE)
        except KafkaException as error:
            _log.warning("it is not certain that all brokers know the new topics: %s", error.args[0].str())

    def _knows(self, admin: AdminClient, names: set[str]) -> bool:
        topics = admin.list_topics(timeout=_ONE_BROKER).topics
        return all(name in topics and topics[name].partitions for name in names)

    def _judge(self, name: str, error: KafkaError) -> None:
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        if error.code() in _REFUSED:
            raise AccessRefused(
                f"The topic {name!r} may not be created: {error.str()}.",
                fix="Create it yourself, or allow the consumer's user to.",
            )
        raise BrokerUnavailable(f"The topic {name!r} cannot be created: {error.str()}.")
