"""Headers as NATS can carry them: names are tokens of ASCII, and a value keeps neither its edges nor its lines.

A message whose headers do not survive that is escaped as a whole, as in URLs (RFC 3986), and says so in one header
more. So whatever an outbox takes arrives, and what is plain already can be read by everybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

ESCAPED: Final = "pillarbox-escaped"
"""There, with the value ``yes``, on a message whose header names and values are to be unquoted."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN_NAME: Final = "!#$&'*+-.^_`|~"
_PLAIN_VALUE: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~\"\\"
_SERVERS: Final = "nats-"
"""How headers begin that the server obeys: Nats-Rollup empties a stream, Nats-TTL lets a message expire."""

Header = tuple[str, str]


def written(headers: Sequence[Header]) -> dict[str, str]:
    """The headers as they travel.

    >>> written([("id", "1"), ("trace", "a")]), written([("Nats-Rollup", "all")])
    ({'id': '1', 'trace': 'a'}, {'%4Eats-Rollup': 'all', 'pillarbox-escaped': 'yes'})
    """
    if all(_survives(name, value) for name, value in headers):
        return dict(headers)
    found = {_escaped_name(name): _escaped_value(value) for name, value in headers}
    return {**found, ESCAPED: "yes"}


def read(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers as they were given to :func:`written`, without the server's own."""
    found = {name: value for name, value in (headers or {}).items() if not name.lower().startswith(_SERVERS)}
    if found.pop(ESCAPED, None) is None:
        return found
    return {unquote(name): unquote(value) for name, value in found.items()}


def parse(block: bytes) -> dict[str, str]:
    """The headers of a block as the server stores it: a line with the version, then ``Name: value`` on each."""
    found: dict[str, str] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name.strip().decode("utf-8", "replace")] = value.strip().decode("utf-8", "replace")
    return found


def size_of(headers: Mapping[str, str]) -> int:
    """Bytes of the block that these headers make."""
    return len(b"NATS/1.0\r\n\r\n") + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())


def _survives(name: str, value: str) -> bool:
    return (
        _NAME.fullmatch(name) is not None
        and not name.lower().startswith((_SERVERS, ESCAPED))
        and value == value.strip()
        and (value.isprintable() or not any(ord(mark) < 32 or ord(mark) == 127 for mark in value))
    )


def _escaped_name(name: str) -> str:
    escaped = quote(name, safe=_PLAIN_NAME)
    if escaped.lower().startswith((_SERVERS, ESCAPED)):
        escaped = f"%{ord(escaped[0]):02X}{escaped[1:]}"
    return escaped


def _escaped_value(value: str) -> str:
    escaped = quote(value, safe=_PLAIN_VALUE)
    if escaped.startswith(" "):
        escaped = f"%20{escaped[1:]}"
    return f"{escaped[:-1]}%20" if escaped.endswith(" ") else escaped
