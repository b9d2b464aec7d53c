"""Reading broker URLs: several hosts, credentials, options. Passwords never get into a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import BadUrl


class BrokerUrl(NamedTuple):
    """The parts of ``scheme://user:password@host:port,host:port/path?option=value``, decoded.

    ``shown`` is the URL without its password and options, for messages.
    """

    scheme: str
    user: str | None
    password: str | None
    hosts: tuple[tuple[str, int], ...]
    path: str
    options: Mapping[str, str]
    shown: str


def parse_broker_url(url: str, *, example: str, default_port: int) -> BrokerUrl:
    """Take the URL apart; BadUrl (PB-002) says what is wrong and shows ``example``."""
    scheme = url.split(":", 1)[0].lower()
    fix = f"Write it as e.g. {example}."
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadUrl(f"The {scheme}: URL cannot be read: {error}.", fix=fix) from error
    if parts.fragment or "@" in parts.path:
        # What is left of it here may be half a password: none of it is shown.
        raise BadUrl(
            f"The {scheme}: URL has a '#', or an '@' after its hosts.",
            fix="Percent-encode special characters in user and password: # is %23, @ is %40, / is %2F, ? is %3F.",
        )
    login, _, places = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if not places:
        raise BadUrl(f"The {scheme}: URL names no host.", fix=fix)
    return BrokerUrl(
        scheme,
        unquote(user) if login else None,
        unquote(password) if colon else None,
        tuple(_host(place, scheme, fix, default_port) for place in places.split(",")),
        unquote(parts.path.removeprefix("/")),
        dict(parse_qsl(parts.query, keep_blank_values=True)),
        f"{scheme}://{places}{parts.path}",
    )


def _host(place: str, scheme: str, fix: str, default_port: int) -> tuple[str, int]:
    if place.startswith("["):  # an IPv6 address
        host, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host or host.strip() != host:
        raise BadUrl(f"The {scheme}: URL has an empty host name.", fix=fix)
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        # It may be a password with a '?' or '/' in it, so it is not shown.
        raise BadUrl(f"The {scheme}: URL has a port that is no number from 1 to 65535.", fix=fix)
    return host, int(port) if port else default_port
