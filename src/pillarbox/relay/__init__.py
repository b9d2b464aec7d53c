"""The relays: from committed rows to the broker. They know ports, policy and event only.

``ordered`` leases partitions and keeps order; ``relay`` leases rows, for competing workers without order.
"""

from .ordered import OrderedRelay
from .relay import Relay
from .settings import RelaySettings
from .stats import RelayStats

__all__ = ["OrderedRelay", "Relay", "RelaySettings", "RelayStats"]
