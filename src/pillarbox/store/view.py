"""``outbox_status``: the tables put together as one, for people and for SQL.

One row for each event and destination. A column means the same in every branch; NULL says "does not apply". Status is

* ``PENDING``     may be claimed now,
* ``PROCESSING``  claimed, by ``locked_by`` until ``locked_until``,
* ``RETRY``       failed, tried again at ``next_retry_at``; ``last_error`` says why,
* ``SCHEDULED``   not to be sent before ``next_retry_at``,
* ``HELD``        behind another event of its key or destination; ``last_error`` says which and why,
* ``DEAD``        given up, with ``last_error``; a person decides,
* ``BURIED``      given up for good by a person,
* ``SENT``        a receipt says so; ``broker_partition`` and ``broker_offset`` where the broker has them,
* ``ORPHAN``      an event without work and without receipt: a foreign writer, or a row deleted by hand.

Select by ``event_id``, or only the columns you need: ``payload_text`` is converted for each row that shows it, and the
orphans are found by walking the events. The relay never reads the view.
"""

from __future__ import annotations

from typing import Final

from ..policy.lanes import PARTITIONS

VIEW: Final = "outbox_status"

DROP: Final = f"DROP VIEW IF EXISTS {VIEW}"

# Text that PostgreSQL's convert_from accepts, as hex: valid UTF-8 (RFC 3629) without NUL. convert_from raises on
# anything else, and one row of bytes would then break every SELECT of the view.
_UTF8_AS_HEX: Final = (
    "^(0[1-9a-f]|[1-7][0-9a-f]|(c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]"
    "|(e[1-9abcef])([89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f]([89ab][0-9a-f]){2}"
    "|f[123]([89ab][0-9a-f]){3}|f48[0-9a-f]([89ab][0-9a-f]){2})*$"
)

_NOW: Final = {
    "postgresql": "clock_timestamp()",
    "mysql": "UTC_TIMESTAMP(6)",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
}

# Destination 0 stands in the event; 1, 2, … in its JSON list of [name, routing key or null].
_MORE: Final = {
    "postgresql": "CAST(e.more_destinations AS json) -> (w.dest - 1) ->> {field}",
    "mysql": "NULLIF(JSON_UNQUOTE(JSON_EXTRACT(e.more_destinations, CONCAT('$[', w.dest - 1, '][{field}]'))), 'null')",
    "sqlite": "json_extract(e.more_destinations, '$[' || (w.dest - 1) || '][{field}]')",
}

_TEXT: Final = {
    "postgresql": f"CASE WHEN encode(e.payload, 'hex') ~ '{_UTF8_AS_HEX}' THEN convert_from(e.payload, 'UTF8') END",
    "mysql": "CASE WHEN {textual} THEN CONVERT(e.payload USING utf8mb4) END",
    "sqlite": "CASE WHEN {textual} THEN CAST(e.payload AS TEXT) END",
}
_TEXTUAL: Final = "(substr(e.content_type, 1, 16) = 'application/json' OR substr(e.content_type, 1, 5) = 'text/')"

# Typed NULLs: PostgreSQL and MySQL take a column's type from all branches of the UNION.
_NULL_MOMENT: Final = {
    "postgresql": "CAST(NULL AS timestamptz)",
    "mysql": "CAST(NULL AS DATETIME(6))",
    "sqlite": "NULL",
}
_NULL_TEXT: Final = {"postgresql": "CAST(NULL AS text)", "mysql": "CAST(NULL AS CHAR)", "sqlite": "NULL"}
_NULL_NUMBER: Final = {"postgresql": "CAST(NULL AS bigint)", "mysql": "CAST(NULL AS SIGNED)", "sqlite": "NULL"}


def create(dialect_name: str, *, partition_table: bool = True) -> str:
    """The CREATE VIEW statement for a dialect (``mariadb`` is ``mysql``).

    ``partition_table`` False: the tables are of the first schema, which has none.
    """
    dialect = "mysql" if dialect_name == "mariadb" else dialect_name
    branches = (_ready(dialect), _parked(dialect), _receipt(dialect), _orphan(dialect, partition_table))
    return f"CREATE VIEW {VIEW} AS\n" + "\nUNION ALL\n".join(branches)


def _ready(dialect: str) -> str:
    held = f"w.leased_until > {_NOW[dialect]}"
    return _branch(
        dialect,
        source="outbox_ready w LEFT JOIN outbox_event e ON e.id = w.id",
        status=f"CASE WHEN {held} THEN 'PROCESSING' ELSE 'PENDING' END",
        retry_count="w.attempts",
        locked_by=f"CASE WHEN {held} THEN w.owner END",
        locked_until=f"CASE WHEN {held} THEN w.leased_until END",
    )


def _parked(dialect: str) -> str:
    return _branch(
        dialect,
        source="outbox_parked w LEFT JOIN outbox_event e ON e.id = w.id",
        status="w.state",
        retry_count="w.attempts",
        next_retry_at="w.due_at",
        last_error="NULLIF(w.error, '')",
        last_error_at="CASE WHEN w.error <> '' THEN w.error_at END",
    )


def _receipt(dialect: str) -> str:
    return _branch(
        dialect,
        source="outbox_receipt w LEFT JOIN outbox_event e ON e.id = w.id",
        status="'SENT'",
        sent_at="w.sent_at",
        sent_by="w.relay",
        broker_partition="w.broker_partition",
        broker_offset="w.broker_offset",
    )


def _orphan(dialect: str, partition_table: bool) -> str:
    """The receipt is looked for first: most events have one. The hot table has no index by id alone: its key is probed
    once for each partition, also when somebody emptied their table, or added to them."""
    partitions = " UNION ".join(f"SELECT {number} AS partition_no" for number in range(PARTITIONS))
    if partition_table:
        partitions += " UNION SELECT partition_no FROM outbox_partition"
    return _branch(
        dialect,
        source="(SELECT id, 0 AS dest FROM outbox_event) w JOIN outbox_event e ON e.id = w.id",
        status="'ORPHAN'",
        where=(
            "NOT EXISTS (SELECT 1 FROM outbox_receipt r WHERE r.id = w.id)\n"
            f"  AND NOT EXISTS (SELECT 1 FROM ({partitions}) p, outbox_ready r\n"
            "    WHERE r.partition_no = p.partition_no AND r.id = w.id)\n"
            "  AND NOT EXISTS (SELECT 1 FROM outbox_parked k\n"
            "    WHERE k.state IN ('RETRY', 'DEAD', 'SCHEDULED', 'HELD', 'BURIED') AND k.id = w.id)"
        ),
    )


def _branch(dialect: str, *, source: str, status: str, where: str = "", **given: str) -> str:
    moment, text, number = _NULL_MOMENT[dialect], _NULL_TEXT[dialect], _NULL_NUMBER[dialect]
    more = _MORE[dialect]
    columns = {
        "event_id": "e.event_id",
        "event_type": "e.event_type",
        "schema_version": "e.schema_version",
        "aggregate_type": "e.aggregate_type",
        "aggregate_id": "e.aggregate_id",
        "event_key": "e.event_key",
        "destination": f"CASE WHEN w.dest = 0 THEN e.destination ELSE {more.format(field=0)} END",
        "routing_key": f"CASE WHEN w.dest = 0 THEN e.routing_key ELSE {more.format(field=1)} END",
        "status": status,
        "retry_count": given.get("retry_count", number),
        "next_retry_at": given.get("next_retry_at", moment),
        "locked_by": given.get("locked_by", text),
        "locked_until": given.get("locked_until", moment),
        "sent_at": given.get("sent_at", moment),
        "sent_by": given.get("sent_by", text),
        "broker_partition": given.get("broker_partition", number),
        "broker_offset": given.get("broker_offset", number),
        "last_error": given.get("last_error", text),
        "last_error_at": given.get("last_error_at", moment),
        "occurred_at": "e.occurred_at",
        "recorded_at": "e.recorded_at",
        "content_type": "e.content_type",
        "payload_text": _TEXT[dialect].replace("{textual}", _TEXTUAL),
        "id": "w.id",
        "dest": "w.dest",
    }
    listed = ",\n  ".join(f"{expression} AS {name}" for name, expression in columns.items())
    return f"SELECT\n  {listed}\nFROM {source}" + (f"\nWHERE {where}" if where else "")
