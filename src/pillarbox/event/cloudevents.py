"""CloudEvents 1.0 in the binary mode of its Kafka binding: the body stays as it is, only the headers get other names.

Attributes are headers with ``ce_`` before their name, the content type is ``content-type`` (Kafka Protocol Binding for
CloudEvents, section 3.2). What CloudEvents has no attribute for travels as extensions of ours: ``schemaversion`` and
``aggregatetype``. The user's own headers stay as they are; ``traceparent`` and ``tracestate`` are repeated as the
Distributed Tracing extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

SOURCE: Final = "ce_source"
SPEC_VERSION: Final = "ce_specversion"
_SUBJECT: Final = "ce_subject"

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "id": "ce_id",
        "eventType": "ce_type",
        "schemaVersion": "ce_schemaversion",
        "occurredAt": "ce_time",
        "contentType": "content-type",
        "aggregateType": "ce_aggregatetype",
        "aggregateId": _SUBJECT,
    }
)
"""Pillarbox's header -> that of the binary mode."""

_TRACE: Final[Mapping[str, str]] = MappingProxyType({"traceparent": "ce_traceparent", "tracestate": "ce_tracestate"})
_RESERVED: Final = frozenset({*NAMES.values(), SOURCE, SPEC_VERSION, *_TRACE.values()})
_URI_REFERENCE: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")


def is_source(text: str) -> bool:
    """Whether it can be the attribute ``source``: a URI reference that is not empty, e.g. ``/shop`` or ``urn:shop``."""
    return _URI_REFERENCE.fullmatch(text) is not None


def to_binary(headers: Iterable[tuple[str, str]], source: str) -> list[tuple[str, str]]:
    """A message's headers (:func:`.message.to_headers`) as those of a CloudEvent of this source.

    A header of the user that bears the name of an attribute is left out: the event's own has that place.
    """
    found = [(SPEC_VERSION, "1.0"), (SOURCE, source)]
    for name, value in headers:
        if name in NAMES:
            found.append((NAMES[name], value))
        elif name not in _RESERVED:
            found.append((name, value))
            if name in _TRACE:
                found.append((_TRACE[name], value))
    return found


def to_plain(headers: Mapping[str, str]) -> dict[str, str]:
    """The other way, whoever published it; other headers, and those that are no CloudEvent's, stay as they are.

    The source and attributes that are not ours are kept under their ``ce_`` names, for handlers to read.
    """
    if "id" in headers or not headers.get(SPEC_VERSION, "").startswith("1.") or NAMES["id"] not in headers:
        return dict(headers)
    left = {name: value for name, value in headers.items() if name != SPEC_VERSION}
    found = {}
    for plain, name in NAMES.items():
        # A subject is a whole aggregate only beside its type.
        if name in left and (name != _SUBJECT or "aggregateType" in found):
            found[plain] = left.pop(name)
    for plain, name in _TRACE.items():
        if name in left:
            traced = left.pop(name)
            left.setdefault(plain, traced)
    return left | found
