"""Reading RabbitMQ queues: pika on a thread with an event loop, so that heartbeats go on while a handler works.

From the outside in: ``source`` is the face that the consumer's thread uses, ``subscription`` the connection that
delivers, ``deadbox`` the one that dead letters leave by, ``channels`` pika's callbacks as things to await.
"""

from .source import RabbitSource

__all__ = ["RabbitSource"]
