"""CloudEvents' binary mode: names of headers, and the way back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.consume.deadletters.letters import Letter
from pillarbox.errors import BadUrl, CannotDecode
from pillarbox.event.cloudevents import NAMES, to_binary, to_plain
from pillarbox.event.destination import Topic
from pillarbox.event.message import KEY, RESERVED_HEADERS, from_wire, to_headers
from pillarbox.publish.kafka.url import parse_kafka_url
from pillarbox.testing.conformance.publisher_world import message

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
own_headers = st.dictionaries(text.filter(lambda name: name not in RESERVED_HEADERS and name[:3] != "ce_"), text)


def test_every_header_of_ours_has_its_attribute() -> None:
    assert NAMES.keys() == RESERVED_HEADERS - {KEY}


def test_a_message_has_all_attributes_that_CloudEvents_asks_for() -> None:
    one = message(Topic("orders"), headers=json.dumps({"traceparent": TRACE, "tenant": "é"}))
    assert dict(to_binary(to_headers(one), "/shop")) == {
        "ce_specversion": "1.0",
        "ce_id": one.event_id,
        "ce_source": "/shop",
        "ce_type": "thing.happened",
        "ce_time": "2026-01-02T03:04:05.678901Z",
        "ce_subject": "7",
        "ce_schemaversion": "1",
        "ce_aggregatetype": "thing",
        "content-type": "application/json",
        "ce_traceparent": TRACE,
        "traceparent": TRACE,
        "tenant": "é",
    }


@given(own_headers, st.none() | st.tuples(text, text), text, text, st.integers(1, 2**31 - 1))
def test_what_was_sent_as_a_CloudEvent_is_read_as_it_was(
    own: dict[str, str], aggregate: tuple[str, str] | None, kind: str, content_type: str, version: int
) -> None:
    sent = message(
        Topic("orders"),
        event_type=kind,
        schema_version=version,
        content_type=content_type,
        aggregate_type=aggregate and aggregate[0],
        aggregate_id=aggregate and aggregate[1],
        headers=json.dumps(own, ensure_ascii=False, separators=(",", ":")) if own else None,
    )
    if "content-type" not in own:
        read = from_wire(to_binary(to_headers(sent), "/shop"), sent.payload, source="orders", key=sent.key)
        assert json.loads(read.headers or "{}") == own | {"ce_source": "/shop"}
        assert read._replace(headers=sent.headers) == sent


def test_a_header_of_the_user_does_not_take_the_place_of_an_attribute() -> None:
    one = message(Topic("orders"), headers=json.dumps({"ce_id": "other", "content-type": "x/y", "ce_traceparent": "z"}))
    found = to_binary(to_headers(one), "/shop")
    assert len(dict(found)) == len(found)
    assert dict(found)["ce_id"] == one.event_id


def test_a_CloudEvent_of_somebody_else_is_understood() -> None:
    theirs = {
        "ce_specversion": "1.0",
        "ce_id": "A234-1234-1234",
        "ce_source": "https://example.com/storage",
        "ce_type": "object.stored",
        "ce_subject": "photo.jpg",
        "ce_time": "2026-04-05T17:31:00Z",
        "ce_traceparent": TRACE,
        "content-type": "image/jpeg",
    }
    read = from_wire(theirs, b"\xff", source="photos", key=None)
    assert (read.event_id, read.event_type, read.content_type) == ("A234-1234-1234", "object.stored", "image/jpeg")
    assert (read.schema_version, read.aggregate_type, read.aggregate_id) == (1, None, None)
    assert json.loads(read.headers or "") == {
        "ce_source": "https://example.com/storage",
        "ce_subject": "photo.jpg",
        "traceparent": TRACE,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"ce_id": "1", "ce_type": "t", "ce_time": "2026-04-05T17:31:00Z"},  # no version
        {"ce_specversion": "2.0", "ce_id": "1", "ce_type": "t", "ce_time": "2026-04-05T17:31:00Z"},
        {"ce_specversion": "1.0", "ce_type": "t", "ce_time": "2026-04-05T17:31:00Z"},
        {"ce_specversion": "1.0", "ce_id": "1", "ce_time": "2026-04-05T17:31:00Z"},
        {"ce_specversion": "1.0", "ce_id": "1", "ce_type": "t"},
    ],
)
def test_PB_016_what_lacks_an_attribute_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(CannotDecode):
        from_wire(headers, b"", source="orders", key=None)


def test_a_dead_letter_that_is_a_CloudEvent_is_listed_by_its_id_and_type() -> None:
    one = message(Topic("orders"))
    letter = Letter("0/1", one.key, dict(to_binary(to_headers(one), "/shop")), 1, None)
    assert (letter.event_id, letter.event_type) == (one.event_id, one.event_type)


def test_a_plain_message_may_carry_such_headers_of_its_user() -> None:
    theirs = {"ce_specversion": "1.0", "ce_id": "other", "id": "1", "eventType": "t"}
    assert to_plain(theirs) == theirs


@pytest.mark.parametrize("source", ["", "a b", "a\nb", "%zz", "ü"])
def test_PB_002_a_source_that_is_no_URI_reference_is_refused(source: str) -> None:
    with pytest.raises(BadUrl, match="URI reference"):
        parse_kafka_url(f"kafka://host?cloudevents.source={source.replace('%', '%25')}", deadline=5)


def test_the_source_is_no_setting_of_the_client() -> None:
    parsed = parse_kafka_url("kafka://host?cloudevents.source=urn:shop", deadline=5)
    assert parsed.cloudevents == "urn:shop"
    assert "cloudevents.source" not in parsed.config
