"""RabbitMQ by pika's SelectConnection alone: persistent, mandatory, confirms pipelined, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import pika
from pika.frame import Method
from pika.spec import Basic

from bench.raw_loop import Position, Row

DEADLINE = 20.0
MESSAGES_PER_TURN = 100
NOWHERE: Position = (None, None)


class RawRabbitMQ:
    """The loop of the connection runs on its thread; what is sent is handed to it."""

    def __init__(self, url: str, *, one_at_a_time: bool = False) -> None:
        """``one_at_a_time``: the answer to a message sends the next one, on the loop's own thread."""
        self._per_turn = 1 if one_at_a_time else MESSAGES_PER_TURN
        self._waiting: Iterator[Row] | None = None  # what is sent once the message on its way is confirmed
        self._one_at_a_time = one_at_a_time
        self._channel: Any = None
        self._awaited: set[int] = set()  # delivery tags without an answer
        self._next_tag = self._lowest_awaited = 1
        self._count = 0
        self._broken = ""
        self._done = threading.Event()
        self._connection = pika.SelectConnection(pika.URLParameters(url), self._opened, self._closed, self._closed)
        self._thread = threading.Thread(target=self._connection.ioloop.start, name="raw-rabbitmq", daemon=True)
        self._thread.start()
        self._wait()

    def start(self, rows: Sequence[Row]) -> None:
        self._done.clear()
        self._count = len(rows)
        self._awaited.update(range(self._next_tag, self._next_tag + len(rows)))
        self._next_tag += len(rows)
        self._waiting = iter(rows) if self._one_at_a_time else None
        self._connection.ioloop.add_callback_threadsafe(partial(self._send_some, self._waiting or iter(rows)))

    def finish(self) -> Sequence[Position]:
        self._wait()
        return [NOWHERE] * self._count

    def _send_some(self, rows: Iterator[Row]) -> None:
        """A part, then the rest after the loop had its turn: the broker works on one part while the next is encoded."""
        part = tuple(islice(rows, self._per_turn))
        if not part:
            return
        publish, properties = self._channel.basic_publish, pika.BasicProperties
        for row in part:
            (_, _, event_id, kind, version, a_type, a_id, key, occurred_at, _, media, payload, exchange, *_) = row
            headers = {
                "id": event_id,
                "eventType": kind,
                "schemaVersion": str(version),
                "occurredAt": occurred_at,
                "contentType": media,
                "aggregateType": a_type,
                "aggregateId": a_id,
                "key": key,
            }
            moment = int(datetime.fromisoformat(occurred_at).timestamp())
            envelope = properties(
                media, headers=headers, delivery_mode=2, message_id=event_id, timestamp=moment, type=kind
            )
            publish(exchange, kind, payload, envelope, mandatory=True)
        self._join_frames()
        if self._waiting is None:
            self._connection.ioloop.add_callback_threadsafe(partial(self._send_some, rows))

    def close(self) -> None:
        self._connection.ioloop.add_callback_threadsafe(self._connection.close)
        self._thread.join(DEADLINE)

    def _join_frames(self) -> None:
        """pika sends each frame by itself, three a message. Joined, they go in large pieces; pika has no public way."""
        buffers = self._connection._transport._tx_buffers
        joined = b"".join(buffers)
        buffers.clear()
        buffers.append(joined)

    def _wait(self) -> None:
        """Until everything awaited has come, or the deadline."""
        if not self._done.wait(DEADLINE + (0.05 * self._count if self._one_at_a_time else 0)):
            raise RuntimeError("the deadline is over")
        if self._broken:
            raise RuntimeError(self._broken)

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda _channel, reason: self._break(str(reason)))
        channel.add_on_return_callback(lambda *_: self._break("a message was returned as unroutable"))
        channel.confirm_delivery(self._answered, callback=lambda _: self._done.set())

    def _answered(self, frame: Method) -> None:
        """Confirms come in any order; `multiple` covers every awaited tag up to this one."""
        if isinstance(frame.method, Basic.Nack):
            self._break("a message was refused")
            return
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._awaited.difference_update(range(self._lowest_awaited, tag + 1))
            self._lowest_awaited = tag + 1
        else:
            self._awaited.discard(tag)
        if not self._awaited:
            self._done.set()
        elif self._waiting is not None:
            self._send_some(self._waiting)

    def _closed(self, _connection: object, reason: object) -> None:
        self._break(str(reason))
        self._connection.ioloop.stop()

    def _break(self, reason: str) -> None:
        self._broken = reason
        self._done.set()
