"""The stored bytes are the encoded bytes, on every database and through every driver."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, create_engine, select
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.errors import InvalidEvent
from pillarbox.event.codec import encode
from pillarbox.event.event import Event
from pillarbox.outbox import AsyncOutbox, Outbox
from pillarbox.store.schema import outbox_event
from tests.integration.outbox.shop import through

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
drafts = st.builds(
    lambda payload, raw, aggregate, key, headers, at: Event(
        payload if raw is None else raw,
        type="order.created",
        content_type=None if raw is None else "application/x-raw",
        aggregate=aggregate,
        key=key,
        headers=headers,
        occurred_at=at,
    ),
    plain_json,
    st.none() | st.binary(max_size=300),
    st.none() | st.tuples(names, names),
    st.none() | names,
    st.none() | st.dictionaries(names.map(lambda name: "x-" + name), text.map(lambda t: t.replace("\0", ""))),
    st.datetimes(datetime(1970, 1, 2), datetime(2999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)

NASTY: list[Any] = [
    {"nul": "\0", "emoji": "🛒", "escaped": '"\\\n\u2028', "big": 10**400, "small": 1e-300, "one": [1, 1.0, True]},
    "",
    None,
    [[[[]]]],
    bytes(range(256)),
    b"",
    b"%s ? :x $1 '\\",
    "x" * 1_048_570,
    b"\0" * 1_048_576,
]


def written(event: Event[Any]) -> bytes:
    return bytes(event.payload) if isinstance(event.payload, bytes) else encode(event.payload, event_type="t")


def nasty() -> list[Event[Any]]:
    return [
        Event(payload, type="t", content_type="application/x-raw" if isinstance(payload, bytes) else None)
        for payload in NASTY
    ]


def stored(connection: Connection, ids: list[str]) -> list[Any]:
    found = connection.execute(select(outbox_event).where(outbox_event.c.event_id.in_(ids)).order_by(outbox_event.c.id))
    return list(found.all())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(drafts, min_size=1, max_size=4))
def test_any_event_is_stored_as_it_was_encoded(engine: Engine, events: list[Event[Any]]) -> None:
    outbox = Outbox(engine)
    with engine.connect() as connection:
        ids = [str(one.id) for one in outbox.add_all(connection, events, to="orders")]
        ids += [str(outbox.add(connection, events[0], to="orders").id)]
        rows = stored(connection, ids)
        connection.rollback()
    for row, event in zip(rows, [*events, events[0]], strict=True):
        assert row.payload == written(event)
        assert (row.aggregate_type, row.aggregate_id) == (event.aggregate or (None, None))
        assert row.event_key == (row.aggregate_id if event.key is None else event.key)
        assert (json.loads(row.headers) if row.headers else {}) == (event.headers or {})
        assert event.occurred_at is not None
        assert row.occurred_at.replace(tzinfo=None) == event.occurred_at.replace(tzinfo=None)


def test_nasty_payloads_up_to_a_mebibyte_are_stored_as_they_are(engine: Engine) -> None:
    """C069: NUL, four-byte text and bytes that are no text."""
    outbox = Outbox(engine, max_payload_bytes=1_048_576)
    with engine.connect() as connection:
        ids = [str(one.id) for one in outbox.add_all(connection, nasty(), to="orders")]
        single = [str(outbox.add(connection, event, to="orders").id) for event in nasty()]
        rows = stored(connection, ids + single)
        connection.rollback()
    assert [row.payload for row in rows] == [written(event) for event in nasty() * 2]


def test_nasty_payloads_are_stored_as_they_are_by_async_drivers(async_engine: AsyncEngine) -> None:
    outbox = AsyncOutbox(async_engine, max_payload_bytes=1_048_576)

    async def story() -> list[bytes]:
        async with async_engine.connect() as connection:
            ids = [str(one.id) for one in await outbox.add_all(connection, nasty(), to="orders")]
            single = [str((await outbox.add(connection, event, to="orders")).id) for event in nasty()]
            rows = await connection.run_sync(stored, ids + single)
            await connection.rollback()
        await async_engine.dispose()
        return [row.payload for row in rows]

    assert asyncio.run(story()) == [written(event) for event in nasty() * 2]


@pytest.mark.parametrize("charset", ["utf8", "latin1"])
@through("mysql-pymysql", "mysql-mysqldb", "mariadb102-pymysql")
def test_a_connection_that_cannot_carry_a_key_is_refused_and_not_damaged(engine: Engine, charset: str) -> None:
    """C069: without strict mode MySQL would store ???? for an emoji."""
    narrow = create_engine(
        engine.url.update_query_dict({"charset": charset}), connect_args={"init_command": "SET sql_mode = ''"}
    )
    with narrow.connect() as connection:
        with pytest.raises(InvalidEvent, match=r"character set.*charset=utf8mb4"):
            Outbox().add(connection, Event({}, type="t", key="🛒"), to="orders")
        queued = Outbox().add(connection, Event({"x": "🛒"}, type="t", key="plain"), to="orders")
        assert [row.payload for row in stored(connection, [str(queued.id)])] == ['{"x":"🛒"}'.encode()]
    narrow.dispose()
