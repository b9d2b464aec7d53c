"""A prefix before every name of an outbox: `shop_outbox_event` and `billing_outbox_event`, side by side in one schema.

All statements of this package say ``outbox_event``. The prefix is put in where a statement leaves for the driver, in
one place: by a listener on engines that serve one outbox alone (:func:`prefixed`), by the executor of ``add`` on the
caller's own connection (:mod:`.write`). Without a prefix neither does anything.

The inbox has no prefix: its rows are told apart by the consumer's name.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from ..errors import BadTablePrefix

LONGEST: Final = 32
"""PostgreSQL cuts names at 63 bytes, and the longest that it makes of ours, `outbox_archive_delivery_pkey`, has 28."""

NAMES: Final = frozenset(
    {
        # Tables and the view.
        *("outbox_event", "outbox_ready", "outbox_parked", "outbox_partition", "outbox_lane", "outbox_relay"),
        *("outbox_receipt", "outbox_replay", "outbox_meta", "outbox_status", "outbox_alembic"),
        *("outbox_archive", "outbox_archive_delivery"),
        # Indexes and constraints: on PostgreSQL and SQLite, and those of checks on MySQL, names of the whole schema.
        *("outbox_event_event_id", "outbox_ready_partition", "outbox_parked_due", "outbox_parked_state"),
        *("outbox_lane_mode", "outbox_replay_event", "outbox_alembic_pkc"),
    }
)
"""Everything that a prefix goes before. A column or an alias must not be called like one of them."""

OPTION: Final = "pillarbox_naming"
"""Execution option of an engine whose statements are translated."""

_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]*")
# It begins with a fixed text, for which the expression engine has a quick search; what comes before is looked at after.
_NAME: Final = re.compile(
    rf"outbox_(?<!\woutbox_)(?:{'|'.join(sorted(name.removeprefix('outbox_') for name in NAMES))})(?!\w)"
)
_KEPT: Final = 4_096
"""Longer statements are made anew each time (lists of ids): to translate them is cheap beside running them."""


class Naming:
    """One outbox's way to say the names: ``naming(sql)`` for a statement, ``naming.name(…)`` for a name alone.

    Raises BadTablePrefix (PB-033) unless the prefix is a-z, 0-9 and _, begins with a letter, and leaves room.

    >>> Naming("shop_")("SELECT MAX(id) FROM outbox_event")
    'SELECT MAX(id) FROM shop_outbox_event'
    """

    __slots__ = ("prefix",)

    def __init__(self, prefix: str = "") -> None:
        self.prefix = check_prefix(prefix)

    def __call__(self, sql: str) -> str:
        if not self.prefix:
            return sql
        return _kept(sql, self.prefix) if len(sql) <= _KEPT else _translated(sql, self.prefix)

    def name(self, name: str) -> str:
        """One of :data:`NAMES` as the database knows it; others, of the inbox, as they are."""
        return self.prefix + name if name in NAMES else name

    def ours(self, name: str) -> str:
        """The other way round."""
        return name.removeprefix(self.prefix)

    def number(self, base: int) -> int:
        """``base``, the number of an advisory lock, for this outbox alone (64 bits, signed)."""
        if not self.prefix:
            return base
        return int.from_bytes(hashlib.sha256(f"{base} {self.prefix}".encode()).digest()[:8], signed=True)

    def mysql_lock(self, kind: str) -> str:
        """SQL for the name of a user lock. Such names are server-wide and have at most 64 characters, hence a hash of
        the database's name (MySQL 9.7 has no MD5)."""
        place = f"CONCAT(DATABASE(), '/{self.prefix}')" if self.prefix else "DATABASE()"
        return f"CONCAT('{kind}', LEFT(SHA2({place}, 256), 40))"


def check_prefix(prefix: str) -> str:
    """The prefix itself, or BadTablePrefix (PB-033)."""
    if prefix and not (_PREFIX.fullmatch(prefix) and len(prefix) <= LONGEST):
        raise BadTablePrefix(f"{prefix[:80]!r} is no table prefix.")
    return prefix


PLAIN: Final = Naming()
"""Without a prefix."""


def prefixed(engine: Engine, prefix: str) -> Engine:
    """The engine as an outbox with this prefix needs it: a copy on the same pool, whose statements are translated.

    Raises BadTablePrefix (PB-033), also for a copy that has another prefix already.
    """
    naming, had = Naming(prefix), naming_of(engine)
    if had.prefix == naming.prefix or not naming.prefix:
        return engine
    if had.prefix:
        raise BadTablePrefix(
            f"The engine is for the prefix {had.prefix!r}, not {prefix!r}.", fix="Make another engine."
        )
    copy = engine.execution_options()
    dedicate(copy, prefix)
    return copy


def dedicate(engine: Engine, prefix: str) -> None:
    """Let the engine itself serve the outbox with this prefix, and no other: a little cheaper for each statement than a
    copy, whose events SQLAlchemy joins from two. Raises BadTablePrefix (PB-033)."""
    naming = Naming(prefix)
    if not prefix:
        return
    engine.update_execution_options(**{OPTION: naming})

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def translate(
        _connection: Any, _cursor: Any, sql: str, parameters: Any, _context: Any, _many: bool
    ) -> tuple[str, Any]:
        return naming(sql), parameters


def naming_of(source: Connection | Engine) -> Naming:
    """How the engine, or the connection's engine, says the names."""
    found: Naming = source.get_execution_options().get(OPTION, PLAIN)
    return found


@lru_cache(maxsize=1_024)
def _kept(sql: str, prefix: str) -> str:
    return _translated(sql, prefix)


def _translated(sql: str, prefix: str) -> str:
    return _NAME.sub(rf"{prefix}\g<0>", sql) if "outbox_" in sql else sql
