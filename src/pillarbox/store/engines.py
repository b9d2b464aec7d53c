"""Engines: the relay's own pool with deadlines on everything, and SQLite with transactions that are what they say.

Isolation is READ COMMITTED: REPEATABLE READ on MySQL takes gap locks, which block business inserts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry

from ..errors import BadUrl, SchemaMismatch, TablesMissing
from .catalog import has_table
from .failures import connect_error, missing_driver, shown
from .naming import Naming, dedicate, naming_of
from .schema import SCHEMA_VERSION, inbox_event, outbox_meta

__all__ = ["Timeouts", "check_schema", "connect_error", "relay_engine", "sqlite_engine", "use_explicit_begin"]

BEGIN_OPTION: Final = "pillarbox_begin"
"""Execution option of a connection to a :func:`sqlite_engine`: DEFERRED for one that only reads."""

_DRIVERS: Final = {
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
_SYNC_DRIVERS: Final = frozenset({"pymysql", "mysqldb", "psycopg", "psycopg2", "pysqlite", "sqlite"})

# A queue's statistics lie: a table analysed while it was empty looks empty with a million rows in it. Each of our
# statements has one right plan, an ordered index range or index look-ups by key, so the other ways are shut.
_POSTGRES_PLANS: Final = (
    "enable_seqscan=off",
    "enable_bitmapscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "enable_sort=off",
    "jit=off",
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. ``statement`` bounds each answer of the server; keep it well below the lease."""

    connect: int = 5
    statement: int = 20
    lock: int = 5


def relay_engine(
    url: str | URL, *, pool_size: int = 4, timeouts: Timeouts | None = None, table_prefix: str = ""
) -> Engine:
    """An engine for the relay, the consumer's inbox and the commands: READ COMMITTED, UTC, a deadline on every call.

    It opens nothing yet. A URL without driver means PyMySQL or psycopg. ``table_prefix`` is that of the one outbox
    that it serves. Raises BadUrl (PB-002), MissingDriver (PB-003), BadTablePrefix (PB-033).

    >>> relay_engine("sqlite:///outbox.db").dialect.name
    'sqlite'
    """
    engine = _relay_engine(url, pool_size, timeouts or Timeouts())
    dedicate(engine, table_prefix)
    return engine


def _relay_engine(url: str | URL, pool_size: int, limits: Timeouts) -> Engine:
    parsed = _with_driver(url)
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:" or parsed.query.get("mode") == "memory":
            raise BadUrl(
                f"A relay cannot share the in-memory database {shown(parsed)}.", fix="Use a file: sqlite:///outbox.db."
            )
        return sqlite_engine(parsed, busy_timeout=limits.lock, pool_size=pool_size)
    arguments = (
        _mysql_arguments(limits)
        if parsed.get_backend_name() in {"mysql", "mariadb"}
        else _postgres_arguments(parsed, limits)
    )
    own = {name: value for name, value in arguments.items() if name not in parsed.query or name == "options"}
    engine = _create(
        parsed,
        isolation_level="READ COMMITTED",
        hide_parameters=True,  # error texts end up in logs; what people wrote into events does not belong there
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=limits.statement,
        pool_recycle=280,  # below the idle limits of common load balancers and NAT gateways
        connect_args=own,
    )
    if parsed.get_driver_name() == "psycopg":
        _limit_answers(engine, limits.statement + 1)
    return engine


def sqlite_engine(url: str | URL, *, begin: str = "IMMEDIATE", busy_timeout: float = 5.0, pool_size: int = 4) -> Engine:
    """An engine for SQLite whose transactions begin when SQLAlchemy says so, SAVEPOINT and DDL included; WAL is on.

    ``begin`` IMMEDIATE takes the write lock at once and waits up to ``busy_timeout`` seconds for it: with DEFERRED, a
    transaction that reads first and writes later fails with "database is locked" once another one wrote meanwhile.
    A connection that only reads may say ``execution_options(pillarbox_begin="DEFERRED")``.

    >>> from sqlalchemy import text
    >>> with sqlite_engine("sqlite://").begin() as connection:
    ...     connection.execute(text("SELECT 1")).scalar_one()
    1
    """
    parsed = _with_driver(url)
    on_disk = bool(parsed.database) and parsed.database != ":memory:" and parsed.query.get("mode") != "memory"
    engine = _create(
        parsed,
        connect_args={} if "timeout" in parsed.query else {"timeout": busy_timeout},
        **({"pool_size": pool_size, "max_overflow": 0, "pool_timeout": 20} if on_disk else {}),
    )
    use_explicit_begin(engine, begin=begin)
    return engine


def use_explicit_begin(engine: Engine, *, begin: str = "IMMEDIATE") -> None:
    """Give an existing SQLite engine the same behaviour; for aiosqlite pass ``async_engine.sync_engine``."""
    if begin not in {"IMMEDIATE", "DEFERRED", "EXCLUSIVE"}:
        raise ValueError(f"begin must be IMMEDIATE, DEFERRED or EXCLUSIVE, got {begin!r}")

    @event.listens_for(engine, "connect")
    def set_up(dbapi_connection: Any, record: ConnectionPoolEntry) -> None:
        # The driver would begin on its own, before INSERT but not before SAVEPOINT or SELECT.
        dbapi_connection.isolation_level = None
        _switch_to_wal(dbapi_connection)

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get(BEGIN_OPTION, begin)}")


def check_schema(connection: Connection, part: str = "outbox", naming: Naming | None = None) -> None:
    """Raise TablesMissing (PB-006) or SchemaMismatch (PB-007) unless the tables of ``part`` fit this release.

    ``part`` is outbox or inbox; ``naming`` as for :func:`.has_table`.
    """
    where, naming = shown(connection.engine.url), naming or naming_of(connection)
    plain = inbox_event.name if part == "inbox" else outbox_meta.name
    table = naming.name(plain)
    if not has_table(connection, plain, naming):
        raise TablesMissing(f"{where} has no table {table}.", fix=_init(part, naming))
    if part == "inbox":
        return
    sql = naming("SELECT schema_version FROM outbox_meta WHERE one = 1")
    version = connection.execute(text(sql)).scalar_one_or_none()
    if version is None:
        raise TablesMissing(
            f"The table {table} in {where} is empty: `pillarbox init` did not finish.", fix=_init(part, naming)
        )
    if version != SCHEMA_VERSION:
        raise SchemaMismatch(
            f"The tables in {where} have schema version {version}, this release works with {SCHEMA_VERSION}."
        )


def _init(part: str, naming: Naming) -> str:
    option = "--part inbox " if part == "inbox" else ""
    option += f"--table-prefix {naming.prefix} " if naming.prefix and part != "inbox" else ""
    return f"Run `pillarbox init {option}--database URL` (or have the DDL of `init --sql` applied)."


def _with_driver(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        driver = parsed.get_driver_name()
    except (exc.ArgumentError, ImportError, ValueError) as error:  # a port that is no number is a ValueError
        raise connect_error(error, url) from error
    if driver not in _SYNC_DRIVERS:
        hint = _DRIVERS.get(parsed.get_backend_name(), "sqlite")
        raise BadUrl(
            f"The driver {driver!r} of {shown(parsed)} is not one that relay and commands work with.",
            fix=f"Use {hint}://….",
        )
    return parsed


def _create(url: URL, **options: Any) -> Engine:
    try:
        return create_engine(url, **options)
    except exc.ArgumentError as error:
        raise connect_error(error, url) from error
    except ImportError as error:
        raise missing_driver(error.name or "", shown(url)) from error


def _mysql_arguments(limits: Timeouts) -> dict[str, Any]:
    # Versioned comments: MySQL alone knows max_execution_time (SELECT only), MariaDB alone max_statement_time.
    session = (
        f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {limits.lock}, lock_wait_timeout = {limits.lock}"
        f" /*!50708 , max_execution_time = {limits.statement * 1000} */"
        f" /*M!100101 , max_statement_time = {limits.statement} */"
    )
    return {
        "connect_timeout": limits.connect,
        "read_timeout": limits.statement + 1,
        "write_timeout": limits.statement + 1,
        "charset": "utf8mb4",
        "init_command": session,
    }


def _postgres_arguments(url: URL, limits: Timeouts) -> dict[str, Any]:
    settings = (
        "timezone=UTC",
        f"statement_timeout={limits.statement}s",
        f"lock_timeout={limits.lock}s",
        f"idle_in_transaction_session_timeout={limits.statement}s",
        *_POSTGRES_PLANS,
    )
    given = url.query.get("options", "")
    return {
        "connect_timeout": limits.connect,
        "application_name": "pillarbox",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": limits.statement * 1000,
        # Start-up options, not SET: behind a transaction pooler, SET would leak into other clients' sessions.
        "options": " ".join(
            [given if isinstance(given, str) else " ".join(given), *(f"-c {one}" for one in settings)]
        ).strip(),
    }


def _limit_answers(engine: Engine, seconds: float) -> None:
    """A server that takes bytes but never answers (frozen, not dead) passes every keepalive: end the wait ourselves."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: object, record: object, arguments: Any, parameters: Any) -> Any:
        from . import psycopg_connection

        return psycopg_connection.connect(seconds, *arguments, **parameters)


def _switch_to_wal(dbapi_connection: Any) -> None:
    # Changing the mode ignores the busy time-out when another process is changing it, too.
    deadline = time.monotonic() + 5.0
    cursor = dbapi_connection.cursor()
    try:
        while True:
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
                return
            except Exception as error:
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in {5, 6}
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)
    finally:
        cursor.close()
