"""Bodies and upcasters that would end a consumer, or keep it for hours, are no more than a poison message."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pillarbox import Received, event_type, upcaster
from pillarbox.consume.handlers import make_handler
from pillarbox.consume.incoming import ForeignMessage, prepare
from pillarbox.consume.registrations import Registrations
from pillarbox.errors import CannotDecode
from pillarbox.event import message as wire
from pillarbox.ports import Incoming

HEADERS: Mapping[str, str] = {wire.ID: "e-1", wire.TYPE: "lifted", wire.OCCURRED_AT: "2026-01-01T00:00:00Z"}


@event_type("lifted", version=3)
@dataclass(frozen=True, slots=True)
class Lifted:
    n: int


@upcaster(Lifted, version=1)
def to_no_json(payload: Any) -> object:
    return object()


def handle_lifted(event: Received[Lifted]) -> None: ...


def handle_plain(event: Received[Any]) -> None: ...


def incoming(body: bytes, **headers: str) -> Incoming:
    return Incoming("orders", {**HEADERS, **headers}, body, None, None, False)


@pytest.fixture
def registrations() -> Registrations:
    found = Registrations()
    found.add(make_handler(Lifted, handle_lifted, {}))
    found.add(make_handler("plain", handle_plain, {}))
    return found


def test_what_an_upcaster_returns_that_is_no_json_is_its_events_failure(registrations: Registrations) -> None:
    with pytest.raises(CannotDecode, match="upcasters make of version 1"):
        prepare(incoming(b"{}"), registrations)


@pytest.mark.parametrize("event_type", ["plain", "lifted"])
def test_a_body_that_is_nested_too_deeply_to_be_read_is_foreign(registrations: Registrations, event_type: str) -> None:
    with pytest.raises(ForeignMessage):
        prepare(incoming(b"[" * 200_000 + b"]" * 200_000, **{wire.TYPE: event_type}), registrations)


def test_a_version_far_below_zero_keeps_nobody(registrations: Registrations) -> None:
    begun = time.process_time()
    with pytest.raises(CannotDecode):
        prepare(incoming(b"{}", **{wire.VERSION: str(-(10**8))}), registrations)
    assert time.process_time() - begun < 2
