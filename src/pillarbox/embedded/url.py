"""``embedded:`` URLs: where the log's file is, and how it is set up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ..errors import BadUrl

_FORMS = "Write embedded:///absolute/path or embedded:relative/path, e.g. embedded:///var/lib/shop/events.log."


class EmbeddedUrl(NamedTuple):
    """The file, and the number of partitions for topics that do not exist yet (None: the default)."""

    path: Path
    partitions: int | None = None


def parse_embedded_url(url: str) -> EmbeddedUrl:
    """Read ``embedded:///abs/path`` or ``embedded:relative``, with ``?partitions=N``; BadUrl (PB-002) otherwise."""
    # Not urlsplit: a '#' is an ordinary character in a file's name.
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "embedded":
        raise BadUrl(f"{url!r} is no embedded: URL.", fix=_FORMS)
    written, _, query = rest.partition("?")
    if written.startswith("//"):
        host, slash, written = written[2:].partition("/")
        if host:
            raise BadUrl(f"{url!r} names a host, {host!r}; the embedded log is a local file.", fix=_FORMS)
        written = slash + written
    path = unquote(written)
    if re.match(r"/[A-Za-z]:[/\\]", path):  # Windows: embedded:///C:/events.log
        path = path[1:]
    if not path or path.endswith("/") or "\0" in path:
        raise BadUrl(f"{url!r} names no file.", fix=_FORMS)
    return EmbeddedUrl(Path(path), _partitions(url, query))


def _partitions(url: str, query: str) -> int | None:
    found: int | None = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "partitions":
            raise BadUrl(f"{url!r} has an unknown option {name!r}.", fix="The embedded log takes ?partitions=N.")
        if not (value.isascii() and value.isdecimal()) or not 1 <= int(value) <= 1024:
            raise BadUrl(f"{url!r}: partitions must be a number from 1 to 1024.", fix="Leave it out for 4.")
        found = int(value)
    return found
