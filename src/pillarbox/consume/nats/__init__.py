"""Reading JetStream streams: pull consumers on an event loop's thread, so that a handler may take its time.

From the outside in: ``source`` is the face that the consumer's thread uses, ``subscription`` the connection and what is
set up over it again after each loss, ``pulling`` asks for messages, ``holding`` keeps what was handed out from being
given to others, ``sidestreams`` takes dead letters and retries, ``durables`` says what a consumer at the server must be
like, ``names`` what all of it is called.
"""

from .source import NatsSource

__all__ = ["NatsSource"]
