"""An event is checked and encoded before anything is written; each refusal names the field and the limit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest

from pillarbox.errors import (
    AggregateIdMissing,
    InvalidEvent,
    NoDestination,
    NotAnEventType,
    NotSerialisable,
    PayloadTooLarge,
    PillarboxError,
)
from pillarbox.event.destination import Destination, Exchange, Topic, destinations
from pillarbox.event.event import Event, to_message
from pillarbox.event.message import Message, from_wire, to_headers
from pillarbox.event.types import EventType, declared_type, event_type

ID = UUID("0191f0a0-0000-7000-8000-000000000001")
NOW = datetime(2026, 1, 31, 12, 0, 0, 1, UTC)


@event_type("order.created", version=2)
@dataclass(frozen=True, slots=True)
class OrderCreated:
    total: int


def message(event: Event[Any], **options: Any) -> Message:
    return to_message(event, Topic("orders"), event_id=ID, occurred_at=NOW, **options)


def plain(payload: object = None, **fields: Any) -> Event[Any]:
    return Event(payload, **{"type": "order.created", **fields})


def test_the_message_has_the_events_facts_and_the_destination() -> None:
    event = Event(OrderCreated(5), aggregate=("order", 7), headers={"tenant": "é"})
    assert message(event) == Message(
        str(ID),
        "order.created",
        2,
        "order",
        "7",
        "7",
        NOW,
        '{"tenant":"é"}',
        "application/json",
        b'{"total":5}',
        "orders",
        None,
    )


def test_given_facts_win_over_made_ones() -> None:
    moment = datetime(2026, 1, 31, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    own = UUID(int=5)
    found = message(Event(OrderCreated(5), key="k", occurred_at=moment, id=own, type="other", version=3))
    assert (found.event_id, found.event_type, found.schema_version, found.key) == (str(own), "other", 3, "k")
    assert found.occurred_at == moment
    assert found.occurred_at.tzinfo is UTC


def test_an_event_without_aggregate_and_key_has_neither() -> None:
    found = message(plain({}))
    assert (found.aggregate_type, found.aggregate_id, found.key, found.headers) == (None, None, None, None)


@pytest.mark.parametrize("number", [7, "7", ID, 10**100, IntEnum("E", {"A": 7}).A])
def test_an_aggregate_id_is_written_as_text(number: Any) -> None:
    assert message(plain({}, aggregate=("order", number))).aggregate_id == str(number)


def test_bytes_pass_untouched_under_their_content_type() -> None:
    for payload in (b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")):
        found = message(plain(payload, content_type="application/x-thing"))
        assert (found.payload, found.content_type) == (b"\x00\xff", "application/x-thing")


@pytest.mark.parametrize(
    ("event", "error", "said"),
    [
        (plain({}, type=""), InvalidEvent, "event type is empty"),
        (plain({}, type=5), InvalidEvent, "event type must be a string, got int"),
        (plain({}, type="x" * 256), InvalidEvent, "event type has 256 characters, the limit is 255"),
        (plain({}, type="é" * 128), InvalidEvent, "event type has 256 bytes, AMQP takes 255"),
        (plain({}, version=0), InvalidEvent, "whole number from 1, got 0"),
        (plain({}, version=True), InvalidEvent, "whole number from 1, got True"),
        (plain({}, version=2**31), InvalidEvent, "whole number from 1"),
        (plain({}, aggregate=("order", None)), AggregateIdMissing, r"\('order', None\).*session\.flush\(\)"),
        (plain({}, aggregate=("order", "x" * 300)), InvalidEvent, "aggregate id has 300 characters, the limit is 255"),
        (plain({}, aggregate=("order", "")), InvalidEvent, "aggregate id is empty"),
        (plain({}, aggregate=("order", True)), InvalidEvent, "must be str, int or UUID, got bool"),
        (plain({}, aggregate=("order", 1.5)), InvalidEvent, "must be str, int or UUID, got float"),
        (plain({}, aggregate=("order", 10**5000)), InvalidEvent, "too long to print"),
        (plain({}, aggregate=("order", "a\0b")), InvalidEvent, "aggregate id holds a NUL"),
        (plain({}, aggregate=("order", "\ud800")), InvalidEvent, "aggregate id holds a lone surrogate"),
        (plain({}, aggregate=(5, 5)), InvalidEvent, "aggregate type must be a string, got int"),
        (plain({}, aggregate="order-7"), InvalidEvent, r"must be \(type, id\), got 'order-7'"),
        (plain({}, key="x" * 256), InvalidEvent, "key has 256 characters"),
        (plain({}, key=""), InvalidEvent, "key is empty"),
        (plain({}, key=7), InvalidEvent, "key must be a string, got int"),
        (plain({}, key="k\0"), InvalidEvent, "key holds a NUL"),
        (plain({}, id="no"), InvalidEvent, "event id must be a UUID, got str"),
        (plain({}, occurred_at=datetime(2026, 1, 1)), InvalidEvent, "with a zone"),  # noqa: DTZ001
        (plain({}, occurred_at=0), InvalidEvent, "with a zone, got 0"),
        (
            plain({}, occurred_at=datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
            InvalidEvent,
            "no moment in UTC",
        ),
        (plain({}, headers=[("a", "b")]), InvalidEvent, "mapping of strings, got list"),
        (plain({}, headers={"a": 5}), InvalidEvent, "header 'a' must be a string, got int"),
        (plain({}, headers={5: "a"}), InvalidEvent, "header name must be a string"),
        (plain({}, headers={"": "a"}), InvalidEvent, "header name is empty"),
        (plain({}, headers={"a": "\0"}), InvalidEvent, "header 'a' holds a NUL"),
        (plain({}, headers={"eventType": "a"}), InvalidEvent, "'eventType' is written by Pillarbox itself"),
        (plain({}, headers={"a": "é" * 9_000}), InvalidEvent, "headers have 18,008 bytes, the limit is 16,384"),
        (plain(b"x"), InvalidEvent, "is bytes, but no content type"),
        (plain({}, content_type="x" * 256), InvalidEvent, "content type has 256 characters"),
        (plain(object()), NotSerialisable, "'order.created' cannot be written as JSON: objects of type object"),
        (plain({"x": float("nan")}), NotSerialisable, "PB-011"),
        (plain("x" * 2_000_000), PayloadTooLarge, "'order.created' has 2,000,002 bytes, the limit is 1,000,000"),
        (Event({}), NotAnEventType, "dict carries no event type"),
        (Event({}, version=2), NotAnEventType, "PB-015"),
        ({"not": "an event"}, InvalidEvent, r"takes an Event, got dict.*Wrap it"),
    ],
)
def test_bad_input_is_refused_with_a_code_the_field_and_the_limit(
    event: Any, error: type[PillarboxError], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        message(event)
    assert caught.value.code in str(caught.value)
    assert "Fix: " in str(caught.value)


def test_the_payload_limit_can_be_set_and_counts_bytes() -> None:
    assert message(plain("é" * 4), max_payload_bytes=10).payload == '"éééé"'.encode()
    with pytest.raises(PayloadTooLarge, match="has 12 bytes, the limit is 10"):
        message(plain("é" * 5), max_payload_bytes=10)


def test_255_characters_of_four_bytes_are_accepted_where_no_broker_counts_bytes() -> None:
    assert message(plain({}, aggregate=("🛒" * 255, "🛒" * 255), key="🛒" * 255)).key == "🛒" * 255


# Types ------------------------------------------------------------------------------------------------------------


def test_the_decorator_returns_the_class_itself_and_subclasses_do_not_inherit_the_name() -> None:
    class Later(OrderCreated):
        pass

    assert OrderCreated.__name__ == "OrderCreated"
    assert declared_type(OrderCreated) == EventType("order.created", 2)
    with pytest.raises(NotAnEventType, match="Later carries no event type"):
        declared_type(Later)


@pytest.mark.parametrize(("name", "version"), [("", 1), ("x" * 300, 1), (5, 1), ("x", 0), ("x", "1")])
def test_the_decorator_checks_name_and_version_at_import(name: Any, version: Any) -> None:
    with pytest.raises(InvalidEvent, match="PB-010"):
        event_type(name, version=version)


# Destinations -----------------------------------------------------------------------------------------------------


def test_a_plain_string_is_a_topic_and_several_may_be_given() -> None:
    assert destinations("orders") == (Destination("orders"),)
    assert destinations(Exchange("x", "k")) == (Destination("x", "k"),)
    assert destinations(["orders", Exchange("", "queue"), ("audit",)]) == (  # type: ignore[list-item]
        Destination("orders"),
        Destination("", "queue"),
        Destination("audit"),
    )


@pytest.mark.parametrize("to", ["", " ", [], 5, None, ["a", "a"], Destination("", None), ["a", 5]])
def test_an_empty_or_doubled_destination_is_refused(to: Any) -> None:
    with pytest.raises(NoDestination, match=r"PB-014.*Fix: "):
        destinations(to)


@pytest.mark.parametrize("make", [lambda: Topic(5), lambda: Exchange("", ""), lambda: Exchange(5, "k")])
def test_a_destination_of_the_wrong_kind_is_refused(make: Any) -> None:
    with pytest.raises(NoDestination):
        make()


@pytest.mark.parametrize("make", [lambda: Topic("x" * 256), lambda: Exchange("x", "é" * 128), lambda: Topic("a\0")])
def test_a_destination_that_cannot_travel_is_refused(make: Any) -> None:
    with pytest.raises(InvalidEvent):
        make()


# The wire ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, {"tenant": "é", "trace": "1"}])
@pytest.mark.parametrize("aggregate", [None, ("order", "7")])
def test_what_is_sent_is_what_is_received(headers: Any, aggregate: Any) -> None:
    """C061: nothing that the first send has gets lost on the way through headers and body."""
    sent = message(Event(OrderCreated(5), aggregate=aggregate, headers=headers))
    assert from_wire(to_headers(sent), sent.payload, source="orders", key=sent.key) == sent
