"""A Kafka broker that tests may cut off and freeze, started once for all that do."""

import os
from collections.abc import Iterator

import pytest

from services.process import ServiceError
from tests.kafka_broker import KafkaBroker, kafka_broker


@pytest.fixture(scope="session")
def running_kafka() -> Iterator[KafkaBroker]:
    try:
        with kafka_broker() as broker:
            yield broker
    except (FileNotFoundError, ServiceError) as error:  # no Java, or no jars and no way to get them
        if os.environ.get("PILLARBOX_REQUIRE_SERVICES") == "1":
            raise
        pytest.skip(f"no Kafka broker can be started here: {error}")


@pytest.fixture
def lone_kafka(running_kafka: KafkaBroker) -> Iterator[KafkaBroker]:
    """The broker behind its proxy; the network is healed afterwards."""
    yield running_kafka
    running_kafka.proxy.heal()
