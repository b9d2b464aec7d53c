"""The consumer's contract about classes of errors and unwanted messages: every broker."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from pillarbox.testing.conformance.consumer_policies import PolicyConformance
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_parallel import EmbeddedBroker, InMemoryBroker, KafkaBroker, RabbitBroker


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class TestPoliciesInMemory(InMemoryBroker, PolicyConformance): ...


class TestPoliciesEmbedded(EmbeddedBroker, PolicyConformance): ...


class TestPoliciesKafka(KafkaBroker, PolicyConformance): ...


class TestPoliciesRabbitMQ(RabbitBroker, PolicyConformance): ...


class TestPoliciesNats(NatsBroker, PolicyConformance): ...
