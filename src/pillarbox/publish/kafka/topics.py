"""What the cluster's metadata says about topics: whether they exist, and whether they can take messages now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    ConfigResource,
    ResourceType,
    TopicMetadata,
)

from ...ports import Rejected
from .client import Client

KNOWN_FOR: Final = 300.0
"""Seconds for which a topic that was found is not looked up again."""

_DESCRIBE_SECONDS: Final = 2.0


class TopicState(NamedTuple):
    """``refused``: nothing can be sent there. ``trouble``: what is wrong; ``stuck``: with every partition.

    ``answered`` False: the cluster did not say so, it said nothing.
    """

    refused: Rejected | None
    trouble: str | None
    stuck: bool
    answered: bool = True


class Topics:
    """Remembers which topics exist, so that a missing one is found before anything is sent to it."""

    def __init__(self, client: Client, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._found: dict[str, float] = {}
        self._partitions: dict[str, int] = {}
        self._min_in_sync: dict[str, int] = {}
        self.notice: Callable[[str, TopicMetadata], None] | None = None
        """Called with each topic that is found, by name."""

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those that have to be looked up."""
        now = self._monotonic()
        return [name for name in names if now - self._found.get(name, -KNOWN_FOR) >= KNOWN_FOR]

    def look_up(self, name: str, timeout: float) -> TopicState:
        """Ask the cluster about a topic. Raises KafkaException when no broker answers within ``timeout`` seconds."""
        metadata = self._client.producer().list_topics(name, timeout=timeout).topics[name]
        code = metadata.error.code() if metadata.error is not None else KafkaError.NO_ERROR
        if code in _REFUSED:
            self.forget(name)
            text, permanent = _REFUSED[code]
            refused = Rejected(text.format(name=name), permanent=permanent, of_destination=not permanent)
            return TopicState(refused, None, True)
        if metadata.partitions:
            self._found[name] = self._monotonic()
            self._partitions[name] = len(metadata.partitions)
            if self.notice is not None:
                self.notice(name, metadata)
        return self._state(name, metadata)

    def names(self) -> list[str]:
        """All that were ever found."""
        return list(self._partitions)

    def partitions(self, name: str) -> int:
        """How many it had when it was looked up last; 0 when that is not known."""
        return self._partitions.get(name, 0)

    def forget(self, name: str) -> None:
        """Look it up again before the next use."""
        self._found.pop(name, None)

    def forget_all(self) -> None:
        """Look all of them up again: something is wrong with the cluster."""
        self._found.clear()

    def _state(self, name: str, metadata: TopicMetadata) -> TopicState:
        partitions = metadata.partitions
        if not partitions:
            return TopicState(None, f"topic {name!r} has no partitions yet", True)
        leaderless = sum(partition.leader < 0 for partition in partitions.values())
        short = 0
        # Asking for min.insync.replicas takes a client of its own: only where a replica is missing at all.
        if any(len(partition.isrs) < len(partition.replicas) for partition in partitions.values()):
            needed = self._needed(name)
            # More than there are replicas cannot be asked for: brokers cap it (KIP-966).
            short = sum(
                one.leader >= 0 and len(one.isrs) < min(needed, len(one.replicas)) for one in partitions.values()
            )
        if not leaderless and not short:
            return TopicState(None, None, False)
        text = (
            f"{leaderless} of {len(partitions)} partitions of {name!r} have no leader, {short} too few replicas in sync"
        )
        return TopicState(None, text, leaderless + short == len(partitions))

    def _needed(self, name: str) -> int:
        if name not in self._min_in_sync:
            try:
                resource = ConfigResource(ResourceType.TOPIC, name)
                asked = self._client.admin().describe_configs([resource], request_timeout=_DESCRIBE_SECONDS)
                self._min_in_sync[name] = int(
                    asked[resource].result(_DESCRIBE_SECONDS + 1)["min.insync.replicas"].value
                )
            except (KafkaException, TimeoutError):
                return 1  # not allowed to ask, or no answer: then only a missing leader counts
        return self._min_in_sync[name]


_REFUSED: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: ("no topic {name!r}", False),
    KafkaError._UNKNOWN_TOPIC: ("no topic {name!r}", False),
    KafkaError.TOPIC_EXCEPTION: ("{name!r} is no valid topic name", True),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ("not authorised to write to topic {name!r}", True),
}
