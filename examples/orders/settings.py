"""Where the services find their databases and the broker, from the environment."""

import os
from typing import Final

from pillarbox import RelaySettings

PLACED_QUEUE: Final = "stock.order-placed"
DECIDED_QUEUE: Final = "orders.stock-decided"

RELAY: Final = RelaySettings(lease=5, broker_deadline=2)
"""A short lease, so that what a killed relay held is free again after five seconds."""


def orders_database() -> str:
    """The order service's own database: MySQL or MariaDB here, any other works."""
    return os.environ["ORDERS_DATABASE"]


def stock_database() -> str:
    """The stock service's own database: PostgreSQL here, any other works."""
    return os.environ["STOCK_DATABASE"]


def broker() -> str:
    """RabbitMQ."""
    return os.environ["ORDERS_BROKER"]
