"""The consumer's contract about hanging handlers, pauses and stops: every broker."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from pillarbox.testing.conformance.consumer_control import ControlConformance
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_parallel import EmbeddedBroker, InMemoryBroker, KafkaBroker, RabbitBroker


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class TestControlInMemory(InMemoryBroker, ControlConformance): ...


class TestControlEmbedded(EmbeddedBroker, ControlConformance): ...


class TestControlKafka(KafkaBroker, ControlConformance): ...


class TestControlRabbitMQ(RabbitBroker, ControlConformance): ...


class TestControlNats(NatsBroker, ControlConformance): ...
