"""NATS JetStream: nats-py on an event loop's thread of its own, each message acknowledged by the stream that keeps it.

From the outside in: ``publisher`` is the face, ``session`` the connection and what is under way, ``line`` the order of
messages, ``verdicts`` what answers mean, ``connection`` and ``loop`` what consumers use as well; ``headers``
and ``writing`` say how a message is written. Nothing but ``connection`` and ``session`` imports the client.
"""

from .publisher import NatsPublisher

__all__ = ["NatsPublisher"]
