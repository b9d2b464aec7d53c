"""What lies behind a destination on RabbitMQ, read from its management API: which queues, and whether they keep events.

AMQP cannot tell: a passive declare says that a queue is there, not of what type it is, and bindings cannot be read.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from ...errors import AccessRefused, BrokerUnavailable
from ...event.destination import Destination
from .binding import leads_to
from .url import RabbitUrl, parse_rabbitmq_url

_PORT: Final = 15672
_TLS_PORT: Final = 15671


class QueueFacts(NamedTuple):
    """A queue as it is. ``members``: the nodes with a copy of it. ``warnings``: how it may lose confirmed events."""

    name: str
    type: str  # classic, quorum or stream
    durable: bool
    members: int
    warnings: tuple[str, ...]


class DestinationFacts(NamedTuple):
    """``queues``: those that an event for it reaches; those of any binding where the routing key is the event type.

    ``warnings`` are about the exchange; empty here and in all queues: nothing is wrong.
    """

    destination: Destination
    exists: bool
    queues: tuple[QueueFacts, ...]
    warnings: tuple[str, ...]


def inspect(url: str, destinations: Sequence[Destination], *, deadline: float = 10.0) -> list[DestinationFacts]:
    """The facts about each destination, within ``deadline`` seconds.

    The API is asked at the option ``management`` of the URL, or at port 15672 of its first host (15671 for amqps), with
    the URL's user, who needs the tag ``management``. Raises BadUrl (PB-002), BrokerUnavailable (PB-005) or
    AccessRefused (PB-008).
    """
    api = _Api(parse_rabbitmq_url(url, connect_timeout=deadline), time.monotonic() + deadline)
    return [_facts(api, destination) for destination in destinations]


def _facts(api: _Api, destination: Destination) -> DestinationFacts:
    if not destination.name:  # the default exchange leads to the queue of the routing key's name
        queue = _queue(api, destination.routing_key or "")
        found = () if queue is None else (queue,)
        return DestinationFacts(destination, queue is not None, found, () if found else ("there is no such queue",))
    exchange = api.get("exchanges", destination.name)
    if exchange is None:
        return DestinationFacts(destination, False, (), ("there is no such exchange",))
    names = dict.fromkeys(_reached(api, exchange, destination.routing_key, set()))
    queues = tuple(queue for queue in (_queue(api, name) for name in names) if queue is not None)
    return DestinationFacts(destination, True, queues, tuple(_of_exchange(exchange, queues)))


def _reached(api: _Api, exchange: Mapping[str, Any], key: str | None, seen: set[str]) -> Iterator[str]:
    """The names of the queues behind it, through bindings between exchanges too."""
    seen.add(exchange["name"])
    for one in api.get("exchanges", exchange["name"], "bindings/source") or ():
        if not leads_to(exchange["type"], one["routing_key"], key):
            continue
        if one["destination_type"] == "queue":
            yield one["destination"]
        elif one["destination"] not in seen and (behind := api.get("exchanges", one["destination"])) is not None:
            yield from _reached(api, behind, key, seen)


def _of_exchange(exchange: Mapping[str, Any], queues: Sequence[QueueFacts]) -> Iterator[str]:
    if not exchange["durable"]:
        yield "the exchange is not durable: it is gone after a restart of the broker"
    if exchange["auto_delete"]:
        yield "the exchange is deleted with its last binding"
    if (other := exchange["arguments"].get("alternate-exchange")) is not None:
        yield f"unroutable events go to the alternate exchange {other!r} and count as delivered"
    if not queues:
        yield "it leads to no queue: every event is unroutable, and a dead letter at once"


def _queue(api: _Api, name: str) -> QueueFacts | None:
    found = api.get("queues", name)
    if found is None:
        return None
    kind = found.get("type") or found["arguments"].get("x-queue-type", "classic")
    members = len(found.get("members", ())) or 1
    return QueueFacts(name, kind, bool(found["durable"]), members, tuple(_of_queue(found, kind, members)))


def _of_queue(queue: Mapping[str, Any], kind: str, members: int) -> Iterator[str]:
    policy = queue.get("effective_policy_definition") or {}
    limits = {name.removeprefix("x-"): value for name, value in {**policy, **queue["arguments"]}.items()}
    if not queue["durable"]:
        yield "it is not durable: it is gone, with its events, after a restart of the broker"
    if queue["auto_delete"] or queue.get("exclusive"):
        yield "it is deleted with its last consumer"
    if kind == "classic" and "ha-mode" not in limits:
        yield "it is a classic queue: its events are on one node alone"
    elif kind != "classic" and members == 1:
        yield "it has one member: its events are on one node alone"
    limited = "max-length" in limits or "max-length-bytes" in limits
    if limited and limits.get("overflow", "drop-head") == "drop-head":
        yield "when it is full it drops its oldest events, although each was confirmed (set overflow to reject-publish)"
    if "message-ttl" in limits:
        yield f"events are dropped from it after {limits['message-ttl']} ms"


class _Api:
    """Reads from the management API of one virtual host."""

    def __init__(self, url: RabbitUrl, until: float) -> None:
        node = url.nodes[0]
        address = urlsplit(url.management or _usual_address(node))
        login = f"{node.credentials.username}:{node.credentials.password}"
        self._headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
        self._shown = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        self._vhost = quote(node.virtual_host, safe="")
        self._tls = node.ssl_options.context if node.ssl_options and address.scheme == "https" else None
        self._until = until

    def get(self, kind: str, name: str, more: str = "") -> Any:
        """The answer, or None where there is no such thing."""
        path = f"{self._shown}/api/{kind}/{self._vhost}/{quote(name, safe='')}" + (f"/{more}" if more else "")
        left = self._until - time.monotonic()
        if left <= 0:
            raise self._away("no time is left")
        request = urllib.request.Request(path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=left, context=self._tls) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code in (401, 403):
                raise AccessRefused(
                    f"RabbitMQ's management API at {self._shown} refused the user.",
                    fix="Give the user the tag `management` (rabbitmqctl set_user_tags USER management).",
                ) from error
            raise self._away(f"HTTP {error.code}") from error
        except (OSError, ValueError) as error:  # a URLError is an OSError
            raise self._away(str(error)) from error

    def _away(self, reason: str) -> BrokerUnavailable:
        return BrokerUnavailable(
            f"RabbitMQ's management API at {self._shown} does not answer: {reason}.",
            fix="Run `rabbitmq-plugins enable rabbitmq_management`, or name its address: ?management=http://host:15672",
        )


def _usual_address(node: Any) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"https://{host}:{_TLS_PORT}" if node.ssl_options else f"http://{host}:{_PORT}"
