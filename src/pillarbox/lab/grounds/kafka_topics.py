"""Topics of the lab on a Kafka cluster: made with their mark, told from others, removed.

The mark is a signature in the topic's own configuration, there from the moment of its creation: a value for
``delete.retention.ms``, which plays no part in a topic that is not compacted, made from the topic's name. Topics
named after a marked one (``….dead``, ``….retry``) belong to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ...errors import BrokerUnavailable
from ...publish.kafka.url import parse_kafka_url
from .claims import abandoned, base_of, claimed_here, forget

log = logging.getLogger("pillarbox.lab")

T = TypeVar("T")

CLAIMED: Final = "kafka"
DEADLINE: Final = 10.0
_SIGNATURE: Final = "delete.retention.ms"
_READY_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = DEADLINE + 5  # the client gives up before
_NO_ANSWER: Final = frozenset(  # gone since it was listed, or not to be asked about: then it has no mark
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)


def foreign_topics(url: str, prefix: str) -> list[str]:
    """Topics whose names begin so and that no run of the lab has made."""
    _, admin = connect(url)
    names = sorted(name for name in cluster(admin).topics if name.startswith(prefix))
    bases = {base for name in names if (base := base_of(name)) is not None and base in names}
    ours = {base for base, sign in _signs(admin, bases).items() if sign == _sign(base)} | claimed_here()
    return [name for name in names if not _belongs(name, ours)]


def remove_left_topics(url: str) -> list[str]:
    """Remove the topics and groups that killed runs on this machine have left; returns their names."""
    _, admin = connect(url)
    with abandoned(CLAIMED) as claims:
        bases = {one.name for one in claims}
        removed = remove(admin, bases, bases | set(map(clock_of, bases)))
        for one in claims:
            if one.name in removed:
                forget(one.name)
    return removed


def connect(url: str) -> tuple[dict[str, Any], AdminClient]:
    """The clients' configuration, and an admin client that nothing was asked of yet."""
    parsed = parse_kafka_url(url, deadline=DEADLINE)
    return dict(parsed.config), AdminClient({**parsed.config})


def signature(name: str) -> dict[str, str]:
    """What a topic's configuration must have to be known as the lab's; for the other parts that make topics."""
    return {_SIGNATURE: _sign(name)}


def clock_of(topic: str) -> str:
    """The topic beside it whose records tell the time."""
    return f"{topic}.clock"


def _sign(name: str) -> str:
    return str(86_400_000 + crc32(f"pillarbox lab {name}".encode()))


def _signs(admin: AdminClient, names: Collection[str]) -> dict[str, str]:
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
    if not resources:
        return {}
    asked = admin.describe_configs(list(resources.values()), request_timeout=DEADLINE)
    found: dict[str, str] = {}
    for name, resource in resources.items():
        try:
            found[name] = str(asked[resource].result(_ANSWER_SECONDS)[_SIGNATURE].value)
        except KafkaException as error:
            if error.args[0].code() not in _NO_ANSWER:
                raise unavailable(error) from error
        except TimeoutError as error:
            raise unavailable(error) from error
    return found


def _belongs(name: str, bases: Collection[str]) -> bool:
    return any(name == base or name.startswith(f"{base}.") for base in bases)


def create(admin: AdminClient, wanted: Sequence[NewTopic]) -> None:
    """Create the topics and wait until each partition has its leader and all replicas in sync."""
    for future in admin.create_topics(list(wanted), operation_timeout=DEADLINE).values():
        answer_of(future)
    until = time.monotonic() + _READY_SECONDS
    while not all(_is_ready(admin, one) for one in wanted):
        if time.monotonic() > until:
            raise BrokerUnavailable(f"The topic {wanted[0].topic} has no leaders after {_READY_SECONDS:g} s.")
        time.sleep(0.02)


def _is_ready(admin: AdminClient, wanted: NewTopic) -> bool:
    there = cluster(admin, wanted.topic).topics[wanted.topic].partitions.values()
    full = [one for one in there if one.leader >= 0 and len(one.isrs) == wanted.replication_factor]
    return len(full) == wanted.num_partitions


def new_topic(name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> NewTopic:
    """A topic with the lab's mark, whose records get the broker's time."""
    config = {_SIGNATURE: _sign(name), "message.timestamp.type": "LogAppendTime", **settings}
    return NewTopic(name, partitions, replicas, config=config)


def remove(admin: AdminClient, bases: Collection[str], known: Collection[str] = ()) -> list[str]:
    """Delete the topics of these names and those named after them, the marked ones last; then the groups.

    ``known`` are topics that were made: a broker may not have heard yet of one that is new. Returns what was deleted.
    """
    if not bases:
        return []
    names = {name for name in cluster(admin).topics if _belongs(name, bases)} | set(known)
    deleted = _delete(admin, names.difference(bases)) + _delete(admin, names.intersection(bases))
    _remove_groups(admin, bases)
    return deleted


def _delete(admin: AdminClient, names: Collection[str]) -> list[str]:
    asked = admin.delete_topics(sorted(names), operation_timeout=DEADLINE) if names else {}
    deleted: list[str] = []
    for name, future in asked.items():
        try:
            future.result(_ANSWER_SECONDS)
            deleted.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise unavailable(error) from error
        except TimeoutError as error:
            raise unavailable(error) from error
    return deleted


def _remove_groups(admin: AdminClient, bases: Collection[str]) -> None:
    """Groups that are empty. One that still has a dead member is forgotten by the broker, with its topic gone."""
    listed = answer_of(admin.list_consumer_groups(request_timeout=DEADLINE))
    groups = [one.group_id for one in listed.valid if _belongs(one.group_id, bases)]
    for group, future in (admin.delete_consumer_groups(groups, request_timeout=DEADLINE) if groups else {}).items():
        try:
            future.result(_ANSWER_SECONDS)
        except (KafkaException, TimeoutError) as error:
            log.debug("the group %s was left to the broker: %s", group, error)


def cluster(admin: AdminClient, topic: str | None = None) -> Any:
    """Its brokers and topics (or one), as the client has them. Raises BrokerUnavailable (PB-005)."""
    try:
        return admin.list_topics(topic, timeout=DEADLINE) if topic else admin.list_topics(timeout=DEADLINE)
    except KafkaException as error:
        raise unavailable(error) from error


def answer_of(future: Future[T]) -> T:
    """What the cluster answered. Raises BrokerUnavailable (PB-005) for an error, and when nothing comes in time."""
    try:
        return future.result(_ANSWER_SECONDS)
    except (KafkaException, TimeoutError) as error:
        raise unavailable(error) from error


def unavailable(error: KafkaException | TimeoutError) -> BrokerUnavailable:
    """Our error for the client's."""
    reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
    return BrokerUnavailable(f"Kafka did not do what the lab asked: {reason}.")
