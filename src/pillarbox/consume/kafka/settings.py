"""The Kafka clients' configuration: what is fixed, what is our default, what the user said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from ...errors import BadUrl
from ...publish.kafka.url import KafkaUrl, parse_kafka_url

Setting = str | int | float | bool

_DEFAULTS: Final[Mapping[str, Setting]] = {
    "auto.offset.reset": "earliest",  # a new consumer misses nothing
    "partition.assignment.strategy": "cooperative-sticky",  # a rebalance stops only what moves
    "session.timeout.ms": 10_000,  # a killed consumer's partitions go on elsewhere after this
    "heartbeat.interval.ms": 1_000,  # also how soon a member hears of a rebalance
    # Enough to be fast; a pause (the wait for a retry) throws away what was fetched ahead.
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 16_384,
}
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


def consumer_config(url: KafkaUrl, group: str, on_error: Callable[[KafkaError], None]) -> dict[str, Any]:
    """The consuming client's configuration."""
    given = {name: value for name, value in url.config.items() if name not in _PRODUCERS_ONLY}
    fixed = {"group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False, "error_cb": on_error}
    return {**_DEFAULTS, **given, **fixed}
