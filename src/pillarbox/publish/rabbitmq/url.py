"""``amqp://`` and ``amqps://`` URLs as pika's connection parameters, one per node."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple

import pika

from ...errors import BadUrl
from ..broker_url import BrokerUrl, parse_broker_url
from ..tls import TLS_OPTIONS, tls_context

EXAMPLE: Final = "amqp://user:password@host:5672/vhost"
OPTIONS: Final = ("heartbeat", "declare", "management", *TLS_OPTIONS)
QUEUE_TYPES: Final = ("quorum", "classic")
DEFAULT_HEARTBEAT: Final = 15
"""Seconds. A dead peer is noticed on an idle connection after about twice as long; a publish has its own deadline."""


class RabbitUrl(NamedTuple):
    """Where to connect: the nodes of one cluster, tried in turn. ``shown`` has no password.

    ``declare``: the type of the queues that a publisher declares where an exchange is missing; None: it declares none.
    ``management``: the address of the management API, where it is not the usual one.
    """

    nodes: tuple[pika.ConnectionParameters, ...]
    shown: str
    declare: str | None = None
    management: str | None = None


def parse_rabbitmq_url(url: str, *, connect_timeout: float) -> RabbitUrl:
    """Read the URL. Options: ``heartbeat`` in seconds; ``declare=quorum`` or ``classic``; ``management=http://host:port``;
    for amqps ``ca``, ``cert``, ``key`` (files), ``verify=no``."""
    secure = url.split(":", 1)[0].lower() == "amqps"
    parts = parse_broker_url(url, example=EXAMPLE, default_port=5671 if secure else 5672)
    unknown = sorted(set(parts.options) - set(OPTIONS))
    if unknown:
        raise BadUrl(f"{parts.shown} has an unknown option {unknown[0]!r}.", fix=f"Known are: {', '.join(OPTIONS)}.")
    context = tls_context(parts) if secure else None
    nodes = (_parameters(parts, host, port, context, connect_timeout) for host, port in parts.hosts)
    return RabbitUrl(tuple(nodes), parts.shown, _declare(parts), _management(parts))


def _parameters(
    parts: BrokerUrl, host: str, port: int, context: ssl.SSLContext | None, connect_timeout: float
) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        host,
        port,
        virtual_host=parts.path or "/",
        credentials=pika.PlainCredentials(parts.user or "guest", "guest" if parts.password is None else parts.password),
        heartbeat=_heartbeat(parts),
        ssl_options=pika.SSLOptions(context, host) if context else None,
        connection_attempts=1,
        socket_timeout=connect_timeout,
        stack_timeout=connect_timeout,
        client_properties={"connection_name": "pillarbox relay", "product": "Pillarbox"},
    )


def _heartbeat(parts: BrokerUrl) -> int:
    text = parts.options.get("heartbeat", str(DEFAULT_HEARTBEAT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 3600):
        raise BadUrl(f"{parts.shown}: heartbeat is {text!r}.", fix="Give whole seconds from 1 to 3600.")
    return int(text)


def _declare(parts: BrokerUrl) -> str | None:
    kind = parts.options.get("declare", "no").lower()
    if kind == "no":
        return None
    if kind not in QUEUE_TYPES:
        raise BadUrl(
            f"{parts.shown}: declare is {kind!r}.",
            fix="Write declare=quorum, declare=classic or declare=no (the default).",
        )
    return kind


def _management(parts: BrokerUrl) -> str | None:
    address = parts.options.get("management")
    if address is not None and not address.startswith(("http://", "https://")):
        raise BadUrl(f"{parts.shown}: management is no http address.", fix="Write e.g. management=http://host:15672.")
    return address
