"""Consuming: each event's effect once per consumer, on Kafka, RabbitMQ, NATS and the embedded log."""

from .consumer import Consumer
from .received import Received
from .running import Running
from .sources import Broker
from .stats import ConsumerStats

__all__ = ["Broker", "Consumer", "ConsumerStats", "Received", "Running"]
