"""The view puts the tables together: one row for each event and destination, its state in words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Engine, text

from pillarbox.event.destination import Exchange
from pillarbox.event.event import Event
from pillarbox.outbox import Outbox
from tests.integration.outbox.shop import installed

SOON = {
    "postgresql": "clock_timestamp() + interval '1 hour'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', '+1 hour')",
}


def rows(engine: Engine, where: str, order: str = "id, dest") -> list[dict[str, Any]]:
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT * FROM outbox_status WHERE {where} ORDER BY {order}"))
        return [dict(row) for row in found.mappings()]


def test_each_state_is_shown_with_its_facts(database_url: str) -> None:
    with installed(database_url) as engine:
        soon, outbox = SOON[engine.dialect.name], Outbox(engine)
        with engine.begin() as connection:
            parked = {"retry": soon, "scheduled": soon, "held": "NULL", "dead": "NULL", "buried": "NULL"}
            for name in ("pending", "processing", *parked, "sent", "orphan"):
                outbox.add(connection, Event({"é": name}, type=name, aggregate=("order", name)), to="orders")

            def change(sql: str, name: str) -> None:
                of = f"id = (SELECT id FROM outbox_event WHERE event_type = '{name}')"
                connection.execute(text(sql.replace("{of}", of)))

            held = f"UPDATE outbox_ready SET leased_until = {soon}, owner = 'relay-1', attempts = 2 WHERE {{of}}"
            park = (
                "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, error, error_at) "
                f"SELECT partition_no, lane, id, dest, '{{state}}', {{due}}, 3, 'refused', {soon} "
                "FROM outbox_ready WHERE {of}"
            )
            receipt = (
                "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset) "
                f"SELECT id, 0, {soon}, 'relay-1', 9, 4, 5000000000 FROM outbox_ready WHERE {{of}}"
            )
            change(held, "processing")
            for state, due in parked.items():
                change(park.replace("{state}", state.upper()).replace("{due}", due), state)
            change(receipt, "sent")
            for gone in (*parked, "sent", "orphan"):
                change("DELETE FROM outbox_ready WHERE {of}", gone)

        found = {row["event_type"]: row for row in rows(engine, "aggregate_type = 'order'")}
        assert {name: row["status"] for name, row in found.items()} == {name: name.upper() for name in found}
        assert len(found) == 9
        assert (found["processing"]["locked_by"], found["processing"]["retry_count"]) == ("relay-1", 2)
        assert found["processing"]["locked_until"] is not None
        assert (found["pending"]["locked_by"], found["pending"]["locked_until"]) == (None, None)
        assert (found["retry"]["retry_count"], found["retry"]["last_error"]) == (3, "refused")
        assert found["retry"]["next_retry_at"] is not None
        assert found["scheduled"]["next_retry_at"] is not None
        assert [found[state]["next_retry_at"] for state in ("held", "dead", "buried")] == [None] * 3
        sent = found["sent"]
        assert (sent["broker_partition"], sent["broker_offset"], sent["sent_by"]) == (4, 5_000_000_000, "relay-1")
        if engine.dialect.name != "sqlite":
            assert isinstance(sent["sent_at"], datetime)
        assert {row["payload_text"] for row in found.values()} == {f'{{"é":"{name}"}}' for name in found}


def test_each_destination_has_its_row(database_url: str) -> None:
    with installed(database_url) as engine:
        with engine.begin() as connection:
            to = ["orders", Exchange("shop", "a.b"), 'quo"ted']
            Outbox(engine).add(connection, Event({}, type="t"), to=to)
        shown = [(row["dest"], row["destination"], row["routing_key"], row["status"]) for row in rows(engine, "1 = 1")]
        assert shown == [
            (0, "orders", None, "PENDING"),
            (1, "shop", "a.b", "PENDING"),
            (2, 'quo"ted', None, "PENDING"),
        ]


def test_bytes_that_are_no_text_do_not_break_the_view(database_url: str) -> None:
    payloads = [b"\xff\x00", b"\x00", b"plain", "é🛒".encode(), b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b""]
    with installed(database_url) as engine:
        with engine.begin() as connection:
            for payload in payloads:
                Outbox(engine).add(connection, Event(payload, type="t", content_type="application/x"), to="orders")
        shown = [row["payload_text"] for row in rows(engine, "1 = 1")]
    if engine.dialect.name == "postgresql":  # there it is text whatever the content type says, if it is valid
        assert shown == [None, None, "plain", "é🛒", None, None, None, ""]
    else:
        assert shown == [None] * len(payloads)


def test_work_whose_event_is_gone_is_shown(database_url: str) -> None:
    with installed(database_url) as engine:
        with engine.begin() as connection:
            Outbox(engine).add(connection, Event({}, type="t"), to="orders")
            connection.execute(text("DELETE FROM outbox_event"))
        assert [(row["event_id"], row["status"]) for row in rows(engine, "1 = 1")] == [(None, "PENDING")]
