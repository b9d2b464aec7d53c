"""The partition-lease relay: order per destination and key, one narrow write per event, many relays that share.

From the outside in: ``relay`` is the loop, ``estate`` what it owns, ``rounds`` what is read and sent together,
``sender`` and ``keeper`` its two threads; ``plan``, ``shares``, ``careful`` and ``lowmark`` are its pure decisions.
"""

from .relay import OrderedRelay

__all__ = ["OrderedRelay"]
