"""Everything that has to be there before the services start: tables, outboxes, inboxes, exchanges and queues."""

import pika
from sqlalchemy.orm import Session

from pillarbox import install

from . import settings

EXCHANGES = {"orders": settings.PLACED_QUEUE, "stock": settings.DECIDED_QUEUE}


def prepare(shelves: dict[str, int]) -> None:
    """Make tables and topology where they are missing, and fill the shelves. Safe to run again."""
    from . import orders, stock  # they read the environment when they are imported

    for service in (orders, stock):
        service.Base.metadata.create_all(service.engine)
        install(service.engine)
    with Session(stock.engine) as session, session.begin():
        for item, free in shelves.items():
            if session.get(stock.Shelf, item) is None:
                session.add(stock.Shelf(item=item, free=free))
    connection = pika.BlockingConnection(pika.URLParameters(settings.broker()))
    channel = connection.channel()
    for exchange, queue in EXCHANGES.items():
        channel.exchange_declare(exchange, "topic", durable=True)
        # Quorum: the queue is on most nodes of a cluster before the broker confirms. One node is enough for a try.
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(queue, exchange, "#")
    connection.close()
