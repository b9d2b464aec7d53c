"""Reading a RabbitMQ stream from its beginning to its end, over AMQP. Reading takes nothing out.

Not a quorum queue: what is given back there comes in another order next time, and counts as a failed delivery; after
20 of those RabbitMQ 4 drops a message. Where a stream ends, AMQP does not tell, so the reader sends a mark and reads up
to it; marks of earlier looks are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import uuid4

import pika
from pika.adapters.blocking_connection import BlockingChannel

from ...errors import BrokerUnavailable

OFFSET: Final = "x-stream-offset"
_LOOK: Final = "pillarbox.lab.look"
_SECONDS: Final = 10.0
_AHEAD: Final = 1_000


def read_stream(channel: BlockingChannel, stream: str) -> Iterator[tuple[int, pika.BasicProperties]]:
    """The offset and properties of each message that is in the stream by now, in its order.

    The channel is used up. Raises BrokerUnavailable (PB-005) when messages stop coming.
    """
    look = str(uuid4())
    channel.confirm_delivery()
    channel.basic_publish("", stream, b"", pika.BasicProperties(type=_LOOK, message_id=look), mandatory=True)
    channel.basic_qos(prefetch_count=_AHEAD)
    arguments = {"x-stream-offset": "first"}
    unread = 0
    for method, properties, _ in channel.consume(stream, arguments=arguments, inactivity_timeout=_SECONDS):
        if method is None or properties is None:
            raise BrokerUnavailable(f"RabbitMQ stopped handing out {stream} before its end, for {_SECONDS:g} s.")
        if properties.type == _LOOK:
            if properties.message_id == look:
                return
        else:
            yield int((properties.headers or {})[OFFSET]), properties
        unread += 1
        if unread >= _AHEAD // 2:  # credit for more; nothing is removed by it
            channel.basic_ack(method.delivery_tag, multiple=True)
            unread = 0
