"""The relay: from committed rows to the broker. Knows ports, policy and event only."""

from .relay import Relay
from .settings import RelaySettings
from .stats import RelayStats

__all__ = ["Relay", "RelaySettings", "RelayStats"]
