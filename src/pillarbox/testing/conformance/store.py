"""The contract of a store: who holds a row, what a settlement changes, and what comes back.

Subclass :class:`StoreConformance` in a test module and give it one fixture::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def under_test(self) -> StoreUnderTest: ...
"""

from __future__ import annotations

import pytest

from .store_claiming import ClaimingConformance
from .store_settling import SettlingConformance
from .store_world import StoreUnderTest, StoreWorld


class StoreConformance(ClaimingConformance, SettlingConformance):
    """What every store must do. A skip names the capability that the store does not declare."""

    @pytest.fixture
    def world(self, under_test: StoreUnderTest) -> StoreWorld:
        """The outbox and events for it."""
        return StoreWorld(under_test)
