"""Reading RabbitMQ queues: pika on a thread with an event loop, so that heartbeats go on while a handler works.

From the outside in: ``source`` is the face that the consumer's thread uses, ``subscription`` the connection that
delivers, ``sidequeues`` the one that dead letters and retries leave by, ``delays`` says where a retry waits,
``channels`` has pika's callbacks as things to await.
"""

from .source import RabbitSource

__all__ = ["RabbitSource"]
