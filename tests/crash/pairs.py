"""The pairs of database and broker that crash tests run on."""

from typing import NamedTuple

import pytest


class Pair(NamedTuple):
    """Fixture names of a database and a broker; None for the demo's own SQLite and embedded log.

    ``again``: its broker has a pair already, and a server of its database's family; left to the long tests.
    """

    database: str | None
    broker: str | None
    again: bool = False

    def __str__(self) -> str:
        if self.database is None:
            return "sqlite+embedded"
        return f"{self.database.removesuffix('_url')}+{str(self.broker).removesuffix('_url')}"

    def urls(self, request: pytest.FixtureRequest) -> tuple[str | None, str | None]:
        """The servers' URLs; skips, or fails, where a server is missing."""
        if self.database is None or self.broker is None:
            return None, None
        return request.getfixturevalue(self.database), request.getfixturevalue(self.broker)


PAIRS = [
    Pair(None, None),
    Pair("mysql_url", "kafka_url"),
    Pair("postgres_url", "rabbitmq_url"),
    Pair("mariadb_url", "rabbitmq_url", again=True),
    Pair("postgres_url", "nats_url", again=True),
]
