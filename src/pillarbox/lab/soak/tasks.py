"""What each process of a soak is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...consume.sources import SOURCES
from ...publish.registry import PUBLISHERS
from ...store.engines import relay_engine
from ..ports import BrokerGround
from .crew import TaskOf
from .links import Links
from .options import SoakOptions
from .schedule import RoleName

RELAY: Final[Mapping[str, Any]] = {
    "lease": 3.0,
    "broker_deadline": 1.4,
    "batch": 200,
    "retry": {"base": 0.5, "cap": 5.0, "max_attempts": 100},
}
"""Short leases, so that a killed relay's work goes on within seconds; many attempts: the storm is no event's fault."""

KAFKA_SESSION_MS: Final = 6000  # the shortest that brokers allow unless told otherwise


def tasks(options: SoakOptions, broker: BrokerGround, links: Links, consumer: str) -> TaskOf:
    """The function that says what a process is told, by role, index and number of starts before."""
    source, reading = broker.source(consumer), dict(broker.source_options())
    common: dict[RoleName, dict[str, Any]] = {
        "relay": {
            "shop_url": links.urls["shop"],
            "broker_url": links.urls["broker"],
            "ownership": options.ownership,
            "relay": dict(RELAY),
        },
        "consumer": {
            "consumers_url": links.urls["consumers"],
            "broker_url": links.urls["broker"],
            "consumer": consumer,
            "source": source,
        },
        "writer": {
            "shop_url": links.urls["shop"],
            "destination": list(broker.destination),
            "keys": options.keys,
            "rate": options.rate / options.writers,
            "withdrawn": options.withdrawn,
        },
    }

    def task_of(role: RoleName, index: int, starts: int) -> Mapping[str, Any]:
        if role == "consumer":
            return common[role] | {"reading": reading_of_member(broker.name, reading, f"{consumer}-{index}")}
        return common[role] | {"seed": f"{options.seed} {role} {index} {starts}"}

    return task_of


def reading_of_member(broker: str, options: Mapping[str, Any], instance: str) -> dict[str, Any]:
    """The source's options for one of several consumers: on Kafka static membership wants a name for each.

    >>> reading_of_member("kafka", {"config": {"group.instance.id": "one"}}, "two")
    {'config': {'session.timeout.ms': 6000}, 'instance_id': 'two'}
    """
    if broker != "kafka":
        return dict(options)
    config = {name: value for name, value in options.get("config", {}).items() if name != "group.instance.id"}
    return {**options, "config": {"session.timeout.ms": KAFKA_SESSION_MS, **config}, "instance_id": instance}


def modules(options: SoakOptions) -> list[str]:
    """What is imported before processes are forked, so that none has to: driver, dialect, publisher, source.

    >>> modules(SoakOptions())[2:]
    ['pillarbox.publish.embedded', 'pillarbox.consume.embedded']
    """
    engine = relay_engine(options.database or "sqlite:///unused.db")
    scheme = "embedded" if options.broker is None else options.broker.partition(":")[0].lower()
    found = [type(engine.dialect).__module__, engine.dialect.import_dbapi().__name__]
    for package, registry in (("pillarbox.publish", PUBLISHERS), ("pillarbox.consume", SOURCES)):
        if scheme in registry:
            found.append(f"{package}.{registry[scheme].partition(':')[0]}")
    return found
