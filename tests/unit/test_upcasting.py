"""Old payloads are lifted version by version; newer ones are not guessed at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from pillarbox import event_type, upcaster
from pillarbox.consume.handlers import decode_payload
from pillarbox.errors import CannotDecode, InvalidEvent, NewerSchemaVersion, NotAnEventType
from pillarbox.event.message import Message
from pillarbox.event.types import declared_type


def of_version(
    version: int, body: bytes, content_type: str = "application/json", kind: str = "order.created"
) -> Message:
    now = datetime.now(UTC)
    return Message("e-1", kind, version, None, None, None, now, None, content_type, body, "orders", None)


@event_type("order.created", version=4)
@dataclass(frozen=True, slots=True)
class Order:
    amount: Decimal
    currency: str
    lines: int = 1


@upcaster(Order, version=1)
def total_was_a_number_of_cents(payload: dict[str, Any]) -> dict[str, Any]:
    return {"total": f"{payload['cents'] / 100:.2f}"}


@upcaster(Order, version=2)
def all_were_euros(payload: dict[str, Any]) -> dict[str, Any]:
    return {"amount": payload["total"], "currency": "EUR"}


# From 3 to 4 `lines` was added, with a default: no upcaster.


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b'{"cents": 1990}'),
        (2, b'{"total": "19.90"}'),
        (3, b'{"amount": "19.90", "currency": "EUR"}'),
        (4, b'{"amount": "19.90", "currency": "EUR", "lines": 1}'),
    ],
)
def test_every_version_so_far_becomes_the_newest_by_the_chain(version: int, body: bytes) -> None:
    assert decode_payload(of_version(version, body), Order) == Order(Decimal("19.90"), "EUR", 1)


def test_a_newer_version_is_refused_with_both_numbers_even_where_it_would_fit() -> None:
    with pytest.raises(NewerSchemaVersion, match=r"has version 5 of 'order.created', and this consumer knows 4"):
        decode_payload(of_version(5, b'{"amount": "19.90", "currency": "EUR"}'), Order)


def test_a_class_may_accept_newer_ones() -> None:
    @event_type("order.created", version=1, accept_newer=True)
    @dataclass(frozen=True)
    class Tolerant:
        amount: Decimal

    assert decode_payload(of_version(9, b'{"amount": "1", "more": 2}'), Tolerant) == Tolerant(Decimal(1))


def test_raw_bodies_plain_json_and_other_types_are_left_alone() -> None:
    assert decode_payload(of_version(1, b'{"cents": 1}'), Any) == {"cents": 1}
    assert decode_payload(of_version(9, b"\x00"), bytes) == b"\x00"
    assert decode_payload(of_version(9, b'{"cents": 1}'), dict[str, int]) == {"cents": 1}


def test_an_upcaster_that_fails_is_named() -> None:
    with pytest.raises(CannotDecode, match=r"total_was_a_number_of_cents from version 1 failed: KeyError: 'cents'"):
        decode_payload(of_version(1, b"{}"), Order)
    with pytest.raises(CannotDecode):
        decode_payload(of_version(1, b"no json"), Order)


def test_an_upcaster_leads_to_its_class_once() -> None:
    with pytest.raises(InvalidEvent, match="nothing leads there from 4"):
        upcaster(Order, version=4)
    with pytest.raises(InvalidEvent, match="has an upcaster from version 1"):
        upcaster(Order, version=1)(all_were_euros)
    with pytest.raises(InvalidEvent):
        upcaster(Order, version=0)
    with pytest.raises(NotAnEventType):
        upcaster(dict, version=1)
    assert declared_type(Order) == ("order.created", 4)


def test_a_subclass_does_not_inherit_the_way_to_its_parent() -> None:
    @event_type("order.created", version=2)
    @dataclass(frozen=True)
    class Old(Order):
        pass

    with pytest.raises(CannotDecode):
        decode_payload(of_version(1, b'{"cents": 1990}'), Old)
