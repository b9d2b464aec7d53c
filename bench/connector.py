"""The configuration of a Debezium connector that reads ``outbox_event`` and routes each row, as it documents it."""

from __future__ import annotations

from typing import Final, Literal

from sqlalchemy import make_url

Tuning = Literal["default", "tuned"]

HEADERS: Final = {
    "event_type": "eventType",
    "schema_version": "schemaVersion",
    "occurred_at": "occurredAt",
    "content_type": "contentType",
    "aggregate_type": "aggregateType",
    "aggregate_id": "aggregateId",
}
"""What the relay sends as headers, too."""

TUNED: Final = {
    "poll.interval.ms": "10",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "extended.headers.enabled": "false",
    "producer.override.linger.ms": "5",
    "producer.override.batch.size": "131072",
}
"""What was found to help most on two cores; the rest is Debezium's and Connect's default."""

_ROUTER: Final = "transforms.outbox."


def configuration(
    database: str, bootstrap: str, topic: str, name: str, server_id: int, tuning: Tuning
) -> dict[str, str]:
    """For the outbox at the URL ``database``; every event goes to ``topic``, with acks of all replicas in sync."""
    url = make_url(database)
    placed = ",".join(f"{column}:header:{header}" for column, header in HEADERS.items())
    plain = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "tasks.max": "1",
        "database.hostname": str(url.host),
        "database.port": str(url.port),
        "database.user": str(url.username),
        "database.password": str(url.password),
        "database.server.id": str(server_id),
        "database.include.list": str(url.database),
        "table.include.list": f"{url.database}.outbox_event",
        "topic.prefix": name,
        "include.schema.changes": "false",
        "snapshot.mode": "no_data",
        "snapshot.locking.mode": "none",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"{name}-history",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
        "tombstones.on.delete": "false",
        "skipped.operations": "u,d,t",
        "transforms": "outbox",
        _ROUTER + "type": "io.debezium.transforms.outbox.EventRouter",
        _ROUTER + "table.field.event.id": "event_id",
        _ROUTER + "table.field.event.key": "event_key",
        _ROUTER + "table.field.event.payload": "payload",
        _ROUTER + "route.by.field": "destination",
        _ROUTER + "route.topic.replacement": topic,
        _ROUTER + "table.fields.additional.placement": placed,
        "producer.override.enable.idempotence": "true",
        "producer.override.acks": "all",
    }
    return plain | (TUNED if tuning == "tuned" else {})
