"""RabbitMQ: pika's SelectConnection on a thread of its own, with publisher confirms.

From the outside in: ``publisher`` is the face, ``batch`` is one call of it, ``session`` the connection and its thread,
``topology`` what must be there before anything is sent, ``lane`` one channel for one exchange, ``ledger`` its delivery
tags, ``refusals`` what the broker's refusals mean. ``inspection`` tells what queues lie behind a destination.
"""

from .inspection import DestinationFacts, QueueFacts, inspect
from .publisher import RabbitPublisher

__all__ = ["DestinationFacts", "QueueFacts", "RabbitPublisher", "inspect"]
