"""The contract of a consumer and its source: each event's effect once, acknowledged only after its commit.

Subclass :class:`ConsumerConformance` in a test module and give it two fixtures::

    class TestMyBroker(ConsumerConformance):
        @pytest.fixture
        def under_test(self) -> BrokerUnderTest: ...

        @pytest.fixture
        def database(self) -> Engine: ...  # a database with the inbox table (pillarbox init --part inbox)

The suite makes two tables of its own in the database, ``conformance_effect`` and ``conformance_only_once``. The halves
can be run alone: ``DeliveryConformance`` for another broker, ``TransactionConformance`` for another database.
"""

from __future__ import annotations

from .consumer_deliveries import DeliveryConformance
from .consumer_transactions import TransactionConformance
from .consumer_world import BrokerUnderTest, ConsumerCapabilities, DeadCopy


class ConsumerConformance(DeliveryConformance, TransactionConformance):
    """What a broker and a database must do together."""


__all__ = [
    "BrokerUnderTest",
    "ConsumerCapabilities",
    "ConsumerConformance",
    "DeadCopy",
    "DeliveryConformance",
    "TransactionConformance",
]
