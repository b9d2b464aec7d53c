"""JSON without loss, or an error: the declared types come back, plain JSON keeps every digit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.errors import CannotDecode, NotSerialisable
from pillarbox.event.codec import decode, decode_plain, encode

NAMED = {"event_type": "order.created"}

text = st.text(st.characters(exclude_categories=["Cs"]))
plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)
facts = {
    "total": st.decimals(allow_nan=False, allow_infinity=False),
    "number": st.integers(-(10**60), 10**60),
    "id": st.uuids(),
    "at": st.datetimes(timezones=st.just(UTC)),
    "on": st.dates(),
    "note": text,
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "tags": st.lists(text, max_size=3),
    "counts": st.dictionaries(text, st.integers(), max_size=3),
}


@dataclass(frozen=True, slots=True)
class AsDataclass:
    total: Decimal
    number: int
    id: UUID
    at: datetime
    on: date
    note: str
    ratio: float
    tags: list[str]
    counts: dict[str, int]


class AsStruct(msgspec.Struct, frozen=True):
    total: Decimal
    number: int
    id: UUID
    at: datetime
    on: date
    note: str
    ratio: float
    tags: list[str]
    counts: dict[str, int]


class AsModel(pydantic.BaseModel):
    total: Decimal
    number: int
    id: UUID
    at: datetime
    on: date
    note: str
    ratio: float
    tags: list[str]
    counts: dict[str, int]


@given(plain_json)
def test_plain_json_comes_back_as_it_went_in(payload: Any) -> None:
    back = decode_plain(encode(payload, **NAMED), **NAMED)
    assert back == payload
    assert repr(back) == repr(payload), "1 and 1.0 and True stay apart"


@pytest.mark.parametrize("kind", [AsDataclass, AsStruct, AsModel])
@given(given=st.fixed_dictionaries(facts))
def test_declared_types_come_back(kind: Any, given: dict[str, Any]) -> None:
    payload = kind(**given)
    assert decode(encode(payload, **NAMED), kind, **NAMED) == payload


class Colour(Enum):
    RED = "red"


@dataclass
class Nested:
    model: AsModel | None
    colours: dict[Colour, tuple[int, ...]]
    lasting: timedelta
    at: time
    raw: bytes
    more: list[Nested] = field(default_factory=list)


def test_models_enums_tuples_and_bytes_come_back_from_deep_inside() -> None:
    model = AsModel(
        total=Decimal("1.10"),
        number=2**80,
        id=UUID(int=1),
        at=datetime(2026, 1, 1, tzinfo=UTC),
        on=date(2026, 1, 1),
        note="\0🛒",
        ratio=0.1,
        tags=[],
        counts={},
    )
    inner = Nested(model, {Colour.RED: (1, 2)}, timedelta(seconds=1.5), time(1, 2), b"\x00\xff")
    outer = Nested(None, {}, timedelta(), time(), b"", [inner])
    assert decode(encode(outer, **NAMED), Nested, **NAMED) == outer


def test_a_model_with_aliases_comes_back() -> None:
    class Aliased(pydantic.BaseModel):
        order_id: int = pydantic.Field(alias="orderId")

    body = encode(Aliased(orderId=5), **NAMED)
    assert body == b'{"orderId":5}'
    assert decode(body, Aliased, **NAMED) == Aliased(orderId=5)


def test_decimal_uuid_and_datetime_are_written_as_strings() -> None:
    payload = {"d": Decimal("1.10"), "u": UUID(int=1), "t": datetime(2026, 1, 1, tzinfo=UTC)}
    assert decode_plain(encode(payload, **NAMED), **NAMED) == {
        "d": "1.10",
        "u": "00000000-0000-0000-0000-000000000001",
        "t": "2026-01-01T00:00:00Z",
    }


def test_text_is_utf8_without_spaces_and_keys_keep_their_order() -> None:
    assert encode({"b": "é🛒\0", "a": [1, 1.0]}, **NAMED) == '{"b":"é🛒\\u0000","a":[1,1.0]}'.encode()


def test_4300_digits_are_kept_both_ways() -> None:
    digits = 10**4299 + 7
    body = encode({"n": digits}, **NAMED)
    assert decode_plain(body, **NAMED) == {"n": digits}
    assert decode(body, dict[str, int], **NAMED) == {"n": digits}


def test_a_moment_with_an_offset_of_seconds_stays_the_same_moment() -> None:
    # What the zone database has for Amsterdam in 1900.
    moment = datetime(1900, 1, 1, 12, tzinfo=timezone(timedelta(minutes=19, seconds=32)))
    assert decode(encode(moment, **NAMED), datetime, **NAMED) == moment


def itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (float("nan"), "not JSON compliant"),
        ({"x": [float("inf")]}, "not JSON compliant"),
        (AsModel.model_construct(ratio=float("nan")), "not JSON compliant"),
        (Decimal("NaN"), "no JSON"),
        ({"x": [Decimal("-Infinity")]}, "no JSON"),
        ({"x": Decimal("sNaN")}, "no JSON"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=1))), "out of range"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (object(), "objects of type object are not supported"),
        ({"deep": [object()]}, "objects of type object"),
        (AsModel, "not supported|missing"),
        ({None: 1}, "keys"),
        pytest.param(10**5000, "digits", id="5001 digits"),
        (itself(), "refers to itself"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_the_events_type(payload: Any, said: str) -> None:
    """C069: refused inside the business transaction, not dropped later."""
    with pytest.raises(NotSerialisable, match=rf"(?s)PB-011.*'order\.created'.*({said})"):
        encode(payload, **NAMED)


@pytest.mark.parametrize(
    ("body", "into"),
    [
        (b"NaN", Any),
        (b"[Infinity]", Any),
        (b"\xff", Any),
        ("{}".encode("utf-16"), Any),
        (b"", Any),
        (b"{}", AsDataclass),
        (b"{}", AsStruct),
        (b"{}", AsModel),
        (b'{"total": "x"}', AsDataclass),
        (b"[" * 100_000, Any),
        (b"[" * 100_000, list),
        (b"1" * 5_000, Any),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_the_events_type(body: bytes, into: Any) -> None:
    with pytest.raises(CannotDecode, match=r"(?s)PB-016.*'order\.created' does not fit"):
        decode(body, into, **NAMED)


@dataclass
class WithCheck:
    currency: str

    def __post_init__(self) -> None:
        self.digits = {"EUR": 2}[self.currency]


class ModelWithCheck(pydantic.BaseModel):
    currency: str

    @pydantic.field_validator("currency")
    @classmethod
    def known(cls, value: str) -> str:
        return str({"EUR": "EUR"}[value])


@pytest.mark.parametrize("into", [WithCheck, ModelWithCheck])
def test_a_class_whose_own_checks_fail_in_any_way_refuses_the_body(into: Any) -> None:
    """Anything else would end the consumer, again and again, at the same event."""
    with pytest.raises(CannotDecode, match=r"KeyError: 'XXX'"):
        decode(b'{"currency": "XXX"}', into, **NAMED)
