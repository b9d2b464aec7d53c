"""The Kafka clients' configuration: what is fixed, what is our default, what the user said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...errors import BadUrl
from ...publish.kafka.url import KafkaUrl, parse_kafka_url

Setting = str | int | float | bool

_DEFAULTS: Final[Mapping[str, Setting]] = {
    "auto.offset.reset": "earliest",  # a new consumer misses nothing
    "partition.assignment.strategy": "cooperative-sticky",  # a rebalance stops only what moves
    "session.timeout.ms": 10_000,  # a killed consumer's partitions go on elsewhere after this
    "heartbeat.interval.ms": 1_000,  # also how soon a member hears of a rebalance
    "topic.metadata.refresh.interval.ms": 30_000,  # how soon a topic that came back is read again
}
STATIC_SESSION_MS: Final = 45_000
"""A static member that restarts within this time finds its partitions where it left them."""
_PRODUCERS_ONLY: Final = frozenset(
    {"acks", "enable.idempotence", "partitioner", "linger.ms", "request.timeout.ms", "message.timeout.ms"}
)
_NOT_YOURS: Final = {
    "group.id": "the consumer's name is the group",
    "enable.auto.commit": "offsets are committed after the database",
    "enable.auto.offset.store": "offsets are committed after the database",
}


def read_url(url: str, config: Mapping[str, Setting], *, deadline: float) -> KafkaUrl:
    """The settings of the URL and of ``config``, which wins. Raises BadUrl (PB-002) for those that are ours."""
    parsed = parse_kafka_url(url, deadline=deadline)
    settings = {**parsed.config, **config}
    for name in sorted(settings.keys() & _NOT_YOURS):
        raise BadUrl(f"{parsed.shown} sets {name}: {_NOT_YOURS[name]}.", fix=f"Leave {name} out.")
    return KafkaUrl(settings, parsed.shown)


class Fetching(NamedTuple):
    """How a member fetches. ``prefetch`` messages and ``prefetch_bytes`` wait in the client at most, beyond those that
    were handed out. ``instance_id`` makes it a static member: a restart is no rebalance."""

    prefetch: int = 2_000
    prefetch_bytes: int = 16 * 1024 * 1024
    instance_id: str | None = None


def consumer_config(url: KafkaUrl, group: str, fetching: Fetching, callbacks: Mapping[str, Any]) -> dict[str, Any]:
    """The consuming client's configuration."""
    given = {name: value for name, value in url.config.items() if name not in _PRODUCERS_ONLY}
    own: dict[str, Any] = {
        "queued.min.messages": fetching.prefetch,
        "queued.max.messages.kbytes": max(1, fetching.prefetch_bytes // 1024),
    }
    if fetching.instance_id is not None:
        own |= {"group.instance.id": fetching.instance_id, "session.timeout.ms": STATIC_SESSION_MS}
    fixed = {"group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False, **callbacks}
    return {**_DEFAULTS, **own, **given, **fixed}
