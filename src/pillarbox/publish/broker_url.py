"""Reading broker URLs: several hosts, credentials, options. Passwords never get into a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ..errors import BadUrl

# RFC 3986, appendix B. Not urlsplit: newer Pythons refuse its netloc when a bracketed address is not the only host.
PARTS = re.compile(
    r"(?:[^:/?#]*:)?(?://(?P<netloc>[^/?#]*))?(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?P<fragment>#.*)?", re.S
)


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
    parts = PARTS.fullmatch(url)
    assert parts is not None  # each part may be empty, so any text matches
    netloc, path, query, fragment = parts.group("netloc", "path", "query", "fragment")
    if fragment or "@" in path:
        # What is left of it here may be half a password: none of it is shown.
        raise BadUrl(
            f"The {scheme}: URL has a '#', or an '@' after its hosts.",
            fix="Percent-encode special characters in user and password: # is %23, @ is %40, / is %2F, ? is %3F.",
        )
    login, _, places = (netloc or "").rpartition("@")
    user, colon, password = login.partition(":")
    if not places:
        raise BadUrl(f"The {scheme}: URL names no host.", fix=fix)
    return BrokerUrl(
        scheme,
        unquote(user) if login else None,
        unquote(password) if colon else None,
        tuple(_host(place, scheme, fix, default_port) for place in places.split(",")),
        unquote(path.removeprefix("/")),
        dict(parse_qsl(query or "", keep_blank_values=True)),
        f"{scheme}://{places}{path}",
    )


def _host(place: str, scheme: str, fix: str, default_port: int) -> tuple[str, int]:
    if place.startswith("["):  # an IPv6 address
        host, closed, rest = place[1:].partition("]")
        if not closed:
            raise BadUrl(f"The {scheme}: URL has a '[' without its ']'.", fix=fix)
        port = rest.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host or host.strip() != host:
        raise BadUrl(f"The {scheme}: URL has an empty host name.", fix=fix)
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        # It may be a password with a '?' or '/' in it, so it is not shown.
        raise BadUrl(f"The {scheme}: URL has a port that is no number from 1 to 65535.", fix=fix)
    return host, int(port) if port else default_port
