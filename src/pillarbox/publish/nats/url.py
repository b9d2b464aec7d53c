"""``nats://`` URLs."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple

from ...errors import BadUrl
from ..broker_url import parse_broker_url
from ..tls import TLS_OPTIONS, tls_context, yes_or_no

EXAMPLE: Final = "nats://user:password@host:4222"
OPTIONS: Final = ("stream", "deduplicate", "tls", *TLS_OPTIONS)
_NO_NAME: Final = frozenset(" \t\r\n.*>/\\")


class NatsUrl(NamedTuple):
    """Where to connect: the servers of one cluster, tried in turn. ``shown`` has no password.

    ``token`` is a user without password. ``stream``: the one that must take what is published, and that consumers read;
    None: whichever has the subject. ``deduplicate``: the event's id goes to the server as the message's.
    """

    hosts: tuple[tuple[str, int], ...]
    user: str | None
    password: str | None
    token: str | None
    tls: ssl.SSLContext | None
    stream: str | None
    deduplicate: bool
    shown: str

    def address(self, number: int) -> str:
        """The server with this number, counted round and round, as the client wants it."""
        host, port = self.hosts[number % len(self.hosts)]
        return f"nats://{f'[{host}]' if ':' in host else host}:{port}"


def parse_nats_url(url: str) -> NatsUrl:
    """Read the URL. Options: ``stream=NAME``; ``deduplicate=no``; ``tls=yes``, and with it or instead of it the files
    ``ca``, ``cert``, ``key``, and ``verify=no``. BadUrl (PB-002) says what is wrong."""
    parts = parse_broker_url(url, example=EXAMPLE, default_port=4222)
    if unknown := sorted(set(parts.options) - set(OPTIONS)):
        raise BadUrl(f"{parts.shown} has an unknown option {unknown[0]!r}.", fix=f"Known are: {', '.join(OPTIONS)}.")
    if parts.path:
        raise BadUrl(f"{parts.shown} has a path.", fix=f"Write it as e.g. {EXAMPLE}; a stream is ?stream=NAME.")
    stream = parts.options.get("stream")
    if stream is not None and (not stream or not _NO_NAME.isdisjoint(stream)):
        raise BadUrl(f"{parts.shown}: {stream!r} cannot be a stream's name.", fix="Name it as `nats stream ls` does.")
    secure = yes_or_no(parts, "tls", default=any(name in parts.options for name in TLS_OPTIONS))
    return NatsUrl(
        parts.hosts,
        None if parts.password is None else parts.user,
        parts.password,
        parts.user if parts.password is None else None,
        tls_context(parts) if secure else None,
        stream,
        yes_or_no(parts, "deduplicate", default=True),
        parts.shown,
    )
