"""What a database driver itself knows of its transaction: the truth that SQLAlchemy's own bookkeeping may miss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

_IN_TRANSACTION: Final = 1  # SERVER_STATUS_IN_TRANS of MySQL's protocol
_IDLE: Final = 0  # PQTRANS_IDLE of libpq
_IN_ERROR: Final = 3  # PQTRANS_INERROR
_LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, from Python 3.12


class Driver(NamedTuple):
    """Questions to a DBAPI connection, answered without a round trip.

    ``commits_alone``: each statement commits by itself. ``in_transaction``: the server has a transaction open; None
    where the driver does not tell. ``failed``: a statement failed, and nothing but a rollback is left; False where the
    driver does not tell.
    """

    commits_alone: Callable[[Connection], bool]
    in_transaction: Callable[[Connection], bool | None]
    failed: Callable[[Connection], bool] = lambda _connection: False


def is_autocommit(connection: Connection) -> bool:
    """Whether statements commit by themselves: by option, by engine or by driver."""
    level = connection.get_execution_options().get("isolation_level")
    if level is None:
        # What create_engine(isolation_level=…) was given; on SQLite an open SAVEPOINT hides it from the driver.
        level = getattr(connection.dialect, "_on_connect_isolation_level", None)
    return level == "AUTOCOMMIT" or driver_of(connection).commits_alone(connection)


def driver_of(connection: Connection) -> Driver:
    """The questions for the connection's driver; UNTESTED for one that the test-suite does not know."""
    return DRIVERS.get(connection.dialect.driver, UNTESTED)


def _dbapi(connection: Connection) -> Any:
    """The DBAPI connection; for async drivers SQLAlchemy's synchronous face of it."""
    return connection.connection.dbapi_connection


def _driver(connection: Connection) -> Any:
    """The driver's own connection object, also for async drivers."""
    return connection.connection.driver_connection


def _untold(_connection: Connection) -> None:
    return None


def _mysql_commits_alone(connection: Connection) -> bool:
    return bool(_driver(connection).get_autocommit())


def _mysql_in_transaction(connection: Connection) -> bool:
    return bool(_driver(connection).server_status & _IN_TRANSACTION)


def _libpq_commits_alone(connection: Connection) -> bool:
    return bool(_dbapi(connection).autocommit)


def _libpq_in_transaction(connection: Connection) -> bool:
    return bool(_driver(connection).info.transaction_status != _IDLE)


def _libpq_failed(connection: Connection) -> bool:
    return bool(_driver(connection).info.transaction_status == _IN_ERROR)


def _asyncpg_in_transaction(connection: Connection) -> bool:
    return bool(_driver(connection).is_in_transaction())


def _sqlite_commits_alone(connection: Connection) -> bool:
    # isolation_level None means that the driver never begins; then somebody must have, as sqlite_engine does.
    driver = _driver(connection)
    if getattr(driver, "autocommit", _LEGACY) is True:
        return True
    return not driver.in_transaction and not begins_by_itself(connection)


def _sqlite_in_transaction(connection: Connection) -> bool:
    return bool(_driver(connection).in_transaction)


def begins_by_itself(connection: Connection) -> bool:
    """SQLite: the driver begins before INSERT, UPDATE and DELETE, but not before SAVEPOINT (its legacy mode)."""
    driver = _driver(connection)
    return driver.isolation_level is not None and getattr(driver, "autocommit", _LEGACY) == _LEGACY


def _any_commits_alone(connection: Connection) -> bool:
    return getattr(_dbapi(connection), "autocommit", False) is True


UNTESTED: Final = Driver(_any_commits_alone, _untold)

_MYSQL: Final = Driver(_mysql_commits_alone, _mysql_in_transaction)
_MYSQL_WITHOUT_FLAG: Final = Driver(_mysql_commits_alone, _untold)
_LIBPQ: Final = Driver(_libpq_commits_alone, _libpq_in_transaction, _libpq_failed)
_SQLITE: Final = Driver(_sqlite_commits_alone, _sqlite_in_transaction)

DRIVERS: Final[Mapping[str, Driver]] = {
    "pymysql": _MYSQL,
    "aiomysql": _MYSQL,
    "mysqldb": _MYSQL_WITHOUT_FLAG,  # the C extension keeps the flag to itself
    "asyncmy": _MYSQL_WITHOUT_FLAG,  # drops a status of 0, which is just what follows an implicit commit
    "psycopg": _LIBPQ,
    "psycopg_async": _LIBPQ,
    "psycopg2": _LIBPQ,
    "asyncpg": Driver(_libpq_commits_alone, _asyncpg_in_transaction),
    "pysqlite": _SQLITE,
    "aiosqlite": _SQLITE,
}
"""The drivers that the test-suite runs."""
