"""What a database error means: try again, wait for the server, or stop because something is wrong.

The drivers' own codes decide, never their wording, except where there is no code (PostgreSQL's refusals at connect).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from ..errors import (
    AccessRefused,
    BadUrl,
    ConfigError,
    DatabaseBusy,
    DatabaseUnavailable,
    MissingDriver,
    PillarboxError,
    SchemaMismatch,
    TablesMissing,
)
from ..masking import MASK, mask_url, mask_whole_url


class Fault(Enum):
    """The classes of database errors that make a difference to us."""

    BUSY = "a lock conflict: the transaction was undone and may be run again"
    LOST = "the connection or the server is gone, or the server has no room"
    READ_ONLY = "this server does not take writes: a replica, or a failover is under way"
    REFUSED = "user, password or permission"
    NO_DATABASE = "the URL names a database that does not exist"
    NO_TABLE = "the tables are not there"
    NO_COLUMN = "the tables are of another schema version"
    SETTING = "a setting of the server makes it refuse our statements"
    BUG = "none of these: it must be seen, not retried"


_MYSQL: Final = {
    **dict.fromkeys((1205, 1213, 1020, 1614, 3101, 3572), Fault.BUSY),
    **dict.fromkeys((1290, 1792, 1836), Fault.READ_ONLY),
    **dict.fromkeys((1044, 1045, 1130, 1142, 1143, 1227, 1251, 1698, 1820, 1862, 2059, 3118, 4151), Fault.REFUSED),
    1049: Fault.NO_DATABASE,
    1665: Fault.SETTING,  # binlog_format STATEMENT with READ COMMITTED
    1146: Fault.NO_TABLE,
    1054: Fault.NO_COLUMN,
    # Full disk or memory, too many connections, shutting down, time limit of a statement, cluster not ready.
    **dict.fromkeys((3, 1021, 1037, 1038, 1040, 1041, 1047, 1053, 1077, 1114, 1129, 1152), Fault.LOST),
    **dict.fromkeys((1158, 1159, 1160, 1161, 1180, 1184, 1203, 1317, 1927, 1969, 3024, 3032, 4031), Fault.LOST),
    **dict.fromkeys((2002, 2003, 2005, 2006, 2013, 2014, 2026, 2045, 2055), Fault.LOST),
}
_POSTGRES: Final = {
    **dict.fromkeys(("40001", "40P01", "55P03"), Fault.BUSY),
    "25006": Fault.READ_ONLY,
    **dict.fromkeys(("28000", "28P01", "42501"), Fault.REFUSED),
    "3D000": Fault.NO_DATABASE,
    **dict.fromkeys(("42P01", "3F000"), Fault.NO_TABLE),
    "42703": Fault.NO_COLUMN,
    "25P03": Fault.LOST,
}
_POSTGRES_LOST_CLASSES: Final = ("08", "53", "57", "58")
_SQLITE: Final = {
    **dict.fromkeys((5, 6), Fault.BUSY),
    **dict.fromkeys((3, 8, 23), Fault.REFUSED),
    **dict.fromkeys((10, 11, 13, 14, 26), Fault.LOST),
}
_REFUSED_AT_CONNECT: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist|permission denied", re.I
)
_NO_DATABASE_AT_CONNECT: Final = re.compile(r"database .* does not exist", re.I)

_INSTALL: Final = {
    "pymysql": "pip install 'pillarbox[mysql]'",
    "psycopg": "pip install 'pillarbox[postgres]'",
    "cryptography": "pip install 'PyMySQL[rsa]'",
}


def fault_of(error: BaseException) -> Fault:
    """The class of an error that SQLAlchemy or a driver raised."""
    if isinstance(error, (exc.TimeoutError, OSError)):
        return Fault.LOST
    if isinstance(error, exc.DBAPIError):
        if error.connection_invalidated:
            return Fault.LOST
        return fault_of(error.orig) if error.orig is not None else Fault.BUG
    return _fault_of_driver(error)


def _fault_of_driver(error: BaseException) -> Fault:
    if error.args and isinstance(error.args[0], int):  # before sqlstate, which PyMySQL has, too, and which says less
        return _MYSQL.get(error.args[0], Fault.BUG)
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return _POSTGRES.get(state) or (Fault.LOST if state[:2] in _POSTGRES_LOST_CLASSES else Fault.BUG)
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _SQLITE.get(code & 0xFF) or _sqlite_by_text(str(error))
    return _without_code(error)


def _sqlite_by_text(text: str) -> Fault:
    # SQLite has one code, 1, for everything that is wrong with a statement.
    if text.startswith("no such table"):
        return Fault.NO_TABLE
    return Fault.NO_COLUMN if "no such column" in text or "has no column named" in text else Fault.BUG


def _without_code(error: BaseException) -> Fault:
    # PyMySQL's InternalError without a code: what came from the server is not its protocol, the connection broke off.
    if type(error).__name__ not in {"OperationalError", "ConnectionTimeout", "InterfaceError", "InternalError"}:
        return Fault.BUG
    text = str(error)
    if _NO_DATABASE_AT_CONNECT.search(text):
        return Fault.NO_DATABASE
    return Fault.REFUSED if _REFUSED_AT_CONNECT.search(text) else Fault.LOST


def connect_error(error: BaseException, url: str | URL) -> PillarboxError:
    """The sentence for a user about an error met while using the database at ``url``; passwords are masked.

    BadUrl (PB-002), MissingDriver (PB-003), DatabaseUnavailable (PB-004), TablesMissing (PB-006),
    SchemaMismatch (PB-007), AccessRefused (PB-008), DatabaseBusy (PB-031)
    or ConfigError (PB-001).
    """
    if isinstance(error, PillarboxError):
        return error
    where, reason = shown(url), _reason(error, url)
    if isinstance(error, ImportError):
        return missing_driver(error.name or "", where)
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return missing_driver("cryptography", where)
    if isinstance(error, (exc.ArgumentError, exc.NoSuchModuleError, ValueError)):
        return BadUrl(f"The database URL {where} cannot be used: {reason}.")
    match fault_of(error):
        case Fault.BUSY:
            return DatabaseBusy(f"{where} refused the transaction because of a lock conflict: {reason}.")
        case Fault.REFUSED:
            return AccessRefused(f"{where} refused access: {reason}.")
        case Fault.NO_DATABASE:
            return BadUrl(
                f"The database of {where} does not exist: {reason}.", fix="Create it, or correct the URL's last part."
            )
        case Fault.NO_TABLE:
            return TablesMissing(f"{where} has no Pillarbox tables: {reason}.")
        case Fault.NO_COLUMN:
            return SchemaMismatch(f"The tables of {where} are of another version: {reason}.")
        case Fault.SETTING:
            return ConfigError(
                f"{where} cannot be used: {reason}.", fix="Set binlog_format to ROW (or MIXED) on the server."
            )
        case Fault.READ_ONLY:
            return DatabaseUnavailable(
                f"{where} does not take writes: {reason}.",
                fix="Point the URL at the primary; after a failover it recovers alone.",
            )
        case _:
            return DatabaseUnavailable(f"{where} does not answer as it should: {reason}.")


def missing_driver(module: str, where: str) -> MissingDriver:
    """The error for a client library that cannot be imported, with the line that installs it."""
    install = _INSTALL.get(
        module.split(".")[0].lower(), f"pip install {module}" if module else "install the driver of the URL"
    )
    return MissingDriver(f"The database driver {module or '?'} for {where} is not installed.", fix=f"{install}")


def shown(url: str | URL) -> str:
    """The URL as it may be printed: password, and secrets in the query, masked."""
    return mask_whole_url(url if isinstance(url, str) else url.render_as_string(hide_password=False))


def _reason(error: BaseException, url: str | URL) -> str:
    found = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    arguments = found.args
    text = str(arguments[1]) if len(arguments) > 1 and isinstance(arguments[0], int) else str(found)
    first = " ".join(text.split()) or type(found).__name__
    return _without_secrets(first, url).rstrip(".")[:500]


def _without_secrets(text: str, url: str | URL) -> str:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):  # a port that is no number is a ValueError
        return mask_url(text)
    password = parsed.password
    return text.replace(password, MASK) if password and len(password) > 2 and password != parsed.username else text
