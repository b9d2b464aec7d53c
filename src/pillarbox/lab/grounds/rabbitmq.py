"""RabbitMQ as the ground: an exchange, a quorum queue per consumer, and a stream of everything, to be read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from ...consume.dead import dead_name
from ...consume.retries import retry_name
from ...event.destination import Destination, Exchange
from ...publish.broker_url import PARTS
from ...publish.rabbitmq.url import RabbitUrl, parse_rabbitmq_url
from ..model import EventId, NotVisible, Record
from ..ports import Address
from .claims import MARK, Claim, forget
from .rabbitmq_management import Management, NoManagement
from .rabbitmq_names import ARGUMENT, open_channel, remove
from .rabbitmq_reading import OFFSET, read_stream

ROUTING_KEY: Final = "lab.alarm"
_UNUSED_MS: Final = 86_400_000  # a killed run's queues are deleted by the broker after a day without use
_QUEUE: Final = {"x-queue-type": "quorum", "x-expires": _UNUSED_MS, ARGUMENT: MARK}
_STREAM: Final = {"x-queue-type": "stream", ARGUMENT: MARK}


@dataclass(slots=True)
class RabbitGround:
    """A :class:`~pillarbox.lab.ports.BrokerGround` on a virtual host."""

    url: str
    exchange: str
    _parsed: RabbitUrl
    _api: Management
    name: str = "rabbitmq"
    _queues: dict[str, None] = field(default_factory=dict)
    _beside: set[str] = field(default_factory=set)
    """What a consumer of the product makes beside its queue: they are known by name where none can be listed."""

    @property
    def address(self) -> Address | None:
        """The first node of the URL; None with TLS, whose certificate a proxy does not have."""
        node = self._parsed.nodes[0]
        return None if node.ssl_options else Address(node.host, node.port)

    @property
    def audit(self) -> str:
        """The stream that gets everything, and from which reading takes nothing."""
        return f"{self.exchange}.audit"

    @property
    def destination(self) -> Destination:
        """The exchange of this cell."""
        return Exchange(self.exchange, ROUTING_KEY)

    def source(self, consumer: str) -> str:
        """A quorum queue of this consumer's own, which gets all that is sent from now on."""
        queue = consumer if consumer.startswith(f"{self.exchange}.") else f"{self.exchange}.{consumer}"
        self._beside |= {dead_name(queue, consumer), retry_name(queue, consumer)}
        if queue not in self._queues:
            with open_channel(self._parsed) as channel:
                self._make(channel, queue, _QUEUE)
        return queue

    def source_options(self) -> Mapping[str, Any]:
        """A killed consumer's messages go back at once, when its connection ends.

        What the product's consumer makes beside its queue is marked, and ends by itself, like the queue.
        """
        return {"dead_queue_arguments": dict(_QUEUE), "retry_queue_arguments": dict(_QUEUE)}

    def through(self, port: int) -> str | NotVisible:
        """The URL through a proxy on 127.0.0.1; not with TLS, where the certificate would not fit."""
        if self.address is None:
            return NotVisible("the connection is encrypted, and a proxy at another address has no certificate for it")
        parts = PARTS.fullmatch(self.url)
        assert parts is not None  # it was understood before
        netloc, path, query = parts.group("netloc", "path", "query")
        login, at, _ = (netloc or "").rpartition("@")
        return f"amqp://{login}{at}127.0.0.1:{port}{path}" + (f"?{query}" if query else "")

    def records(self) -> tuple[Record, ...]:
        """Everything in the audit stream, in its order, by offset."""
        with open_channel(self._parsed) as channel:
            return tuple(_record(self.audit, offset, one) for offset, one in read_stream(channel, self.audit))

    def state(self) -> Mapping[str, Any]:
        """By queue: its type, what is ready, members and leader. And how many records the audit stream has."""
        with open_channel(self._parsed) as channel:
            counts = {queue: _counts(channel, queue) for queue in self._queues if queue != self.audit}
        return {
            "exchange": self.exchange,
            "queues": {queue: {**counts[queue], **self._members(queue)} for queue in counts},
            "audit": {"type": "stream", **self._members(self.audit)},
            "records": len(self.records()),
        }

    def committed(self, consumer: str) -> Mapping[str, Any]:
        """The consumer's queue: messages that are ready, and those that were handed out and are not acknowledged."""
        queue = self.source(consumer)
        with open_channel(self._parsed) as channel:
            counts = _counts(channel, queue)
        return {"queue": queue, **counts, "unacknowledged": self._unacknowledged(queue, counts)}

    def settings(self) -> Mapping[str, Any]:
        """What the server says of itself when it greets, and how the lab's queues are made."""
        with open_channel(self._parsed) as channel:
            said = _properties_of(channel)
        return {
            "broker": self.name,
            "server_version": said.get("version", NotVisible("the server did not say")),
            "product": said.get("product", NotVisible("the server did not say")),
            "platform": said.get("platform", NotVisible("the server did not say")),
            "queue_type": "quorum",
            "durable": True,
        }

    def clock_offset(self) -> float | NotVisible:
        """AMQP has no question for it."""
        return NotVisible("RabbitMQ does not tell its clients the time")

    def _make(self, channel: BlockingChannel, queue: str, arguments: Mapping[str, Any]) -> None:
        channel.queue_declare(queue, durable=True, arguments=dict(arguments))
        channel.queue_bind(queue, self.exchange, "#")
        self._queues[queue] = None

    def _members(self, queue: str) -> Mapping[str, Any]:
        try:
            told = self._api.queue(queue) or {}
        except NoManagement as error:
            return dict.fromkeys(("leader", "members", "online"), NotVisible(str(error)))
        why = NotVisible("the management API does not say")
        return {name: told.get(name, why) for name in ("leader", "members", "online")}

    def _unacknowledged(self, queue: str, counts: Mapping[str, Any]) -> int | NotVisible:
        if counts["consumers"] == 0:
            return 0  # what a consumer has not acknowledged goes back when it leaves
        try:
            told = (self._api.queue(queue) or {}).get("messages_unacknowledged", "none")
        except NoManagement as error:
            return NotVisible(str(error))
        return NotVisible(f"the queue has a consumer, and the management API counts every 5 s; its last count: {told}")


@contextmanager
def rabbitmq_ground(url: str, claimed: Claim) -> Iterator[RabbitGround]:
    """An exchange and its audit queue; removed at the end with all queues that belong to it, also after an error."""
    parsed = parse_rabbitmq_url(url, connect_timeout=5.0)
    ground = RabbitGround(url, claimed.name, parsed, Management(parsed))
    made = False
    try:
        with open_channel(parsed) as channel:
            made = True
            channel.exchange_declare(claimed.name, "topic", durable=True, arguments={ARGUMENT: MARK})
            ground._make(channel, ground.audit, _STREAM)
        yield ground
    finally:
        if made:
            remove(parsed, ground._api, {claimed.name}, ground._queues.keys() | ground._beside)
        forget(claimed.name)


def _counts(channel: BlockingChannel, queue: str) -> dict[str, Any]:
    answer = channel.queue_declare(queue, passive=True).method
    return {"type": "quorum", "ready": int(answer.message_count), "consumers": int(answer.consumer_count)}


def _record(queue: str, offset: int, properties: pika.BasicProperties) -> Record:
    given = (properties.headers or {}).items()
    headers = {str(name): str(value) for name, value in given if name != OFFSET}
    place = f"{queue}@{offset}"
    stamp = (properties.headers or {}).get("timestamp_in_ms")  # where the broker is set up to put it in
    event_id = properties.message_id or headers.get("id") or place
    return Record(EventId(event_id), place, headers, None if stamp is None else int(stamp) / 1000)


def _properties_of(channel: BlockingChannel) -> dict[str, str]:
    """pika gives the server's greeting to the connection's implementation alone."""
    said: Mapping[Any, Any] = getattr(channel.connection._impl, "server_properties", None) or {}
    return {_text(name): _text(value) for name, value in said.items() if isinstance(value, (str, bytes))}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
