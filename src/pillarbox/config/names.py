"""What settings are called: in the file, in the environment and as options."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "PILLARBOX_"
FILE_NAME: Final = "pillarbox.toml"
FILE_VARIABLE: Final = "PILLARBOX_CONFIG"
NOT_SETTINGS: Final = (FILE_VARIABLE, "PILLARBOX_TEST_", "PILLARBOX_REQUIRE_SERVICES")
"""Names (or beginnings) that other parts own: no warning about them."""

OUTBOX_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,19}$"
"""What an outbox may be called under ``[outboxes]``: it becomes part of relay ids and metrics."""

FLAGS: Final = {
    "database": "--database",
    "broker": "--broker",
    "table_prefix": "--table-prefix",
    "relay.id": "--relay-id",
    "relay.ownership": "--ownership",
    "relay.on_failure": "--on-failure",
    "relay.lease": "--lease",
    "relay.broker_deadline": "--broker-deadline",
    "relay.batch": "--batch",
    "relay.stop_deadline": "--stop-deadline",
    "relay.http": "--http",
    "relay.processes": "--processes",
    "relay.listen": "--listen",
    "retention.keep": "--keep",
    "retention.keep_dead": "--keep-dead",
    "retention.rate": "--rate",
    "retention.batch": "--batch",
    "retention.archive": "--archive",
    "log.level": "--log-level",
    "log.json_lines": "--log-json",
}
"""The settings that have an option, and its name. The others live in the file and the environment only."""


def variable(key: str) -> str:
    """The environment variable of a setting: ``relay.batch`` is ``PILLARBOX_RELAY__BATCH``."""
    return PREFIX + key.upper().replace(".", "__")
