"""The contract of the partition lease's store: who owns a partition, what is read, and what a settlement changes.

Subclass :class:`OrderedStoreConformance` in a test module and give it one fixture::

    class TestMyStore(OrderedStoreConformance):
        @pytest.fixture
        def under_test(self) -> OrderedUnderTest: ...
"""

from __future__ import annotations

import pytest

from .ordered_store_holding import HoldingConformance
from .ordered_store_owning import OwningConformance
from .ordered_store_reading import OrderedReadingConformance
from .ordered_store_settling import OrderedSettlingConformance
from .ordered_store_world import OrderedUnderTest, OrderedWorld


class OrderedStoreConformance(
    OwningConformance, OrderedReadingConformance, OrderedSettlingConformance, HoldingConformance
):
    """What every store of the partition lease must do. A skip names the capability that it does not declare."""

    @pytest.fixture
    def world(self, under_test: OrderedUnderTest) -> OrderedWorld:
        """The outbox, events and relays for it."""
        return OrderedWorld(under_test)
