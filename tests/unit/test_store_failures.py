"""What database errors mean, by the drivers' own codes; and that no password is ever shown."""

import sqlite3

import psycopg
import pymysql
import pytest
from sqlalchemy import exc

from pillarbox.errors import (
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
from pillarbox.store.failures import Fault, connect_error, fault_of, shown

URL = "mysql+pymysql://app:s3cret@db.example:3306/shop"


def mysql(code: int) -> Exception:
    return pymysql.OperationalError(code, "said the server")


def postgres(state: str) -> Exception:
    return psycopg.errors.lookup(state)("said the server")


def sqlite(code: int, text: str = "said the library") -> Exception:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (mysql(1213), Fault.BUSY),
        (mysql(1205), Fault.BUSY),
        (postgres("40001"), Fault.BUSY),
        (postgres("40P01"), Fault.BUSY),
        (postgres("55P03"), Fault.BUSY),
        (sqlite(5), Fault.BUSY),
        (sqlite(517), Fault.BUSY),  # SQLITE_BUSY_SNAPSHOT
        (sqlite(6), Fault.BUSY),
        (mysql(2013), Fault.LOST),
        (mysql(1040), Fault.LOST),
        (mysql(1114), Fault.LOST),  # the disk is full
        (postgres("57P01"), Fault.LOST),
        (postgres("53100"), Fault.LOST),  # the disk is full
        (postgres("57014"), Fault.LOST),  # statement time-out
        (sqlite(13), Fault.LOST),  # the disk is full
        (mysql(1290), Fault.READ_ONLY),
        (postgres("25006"), Fault.READ_ONLY),
        (mysql(1045), Fault.REFUSED),
        (postgres("28P01"), Fault.REFUSED),
        (postgres("42501"), Fault.REFUSED),
        (mysql(1049), Fault.NO_DATABASE),
        (postgres("3D000"), Fault.NO_DATABASE),
        (mysql(1146), Fault.NO_TABLE),
        (postgres("42P01"), Fault.NO_TABLE),
        (sqlite(1, "no such table: outbox_meta"), Fault.NO_TABLE),
        (mysql(1054), Fault.NO_COLUMN),
        (postgres("42703"), Fault.NO_COLUMN),
        (sqlite(1, "table outbox_ready has no column named lane"), Fault.NO_COLUMN),
        (mysql(1665), Fault.SETTING),
        (mysql(1064), Fault.BUG),
        (postgres("22P02"), Fault.BUG),
        (sqlite(1, 'near "SELEC": syntax error'), Fault.BUG),
        (psycopg.OperationalError("connection refused"), Fault.LOST),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "app"'), Fault.REFUSED),
        (psycopg.OperationalError('FATAL:  database "shop" does not exist'), Fault.NO_DATABASE),
        (psycopg.OperationalError('FATAL:  role "app" does not exist'), Fault.REFUSED),
        (exc.TimeoutError("QueuePool limit reached"), Fault.LOST),
        (ConnectionResetError(), Fault.LOST),
        (ValueError("something else"), Fault.BUG),
    ],
    ids=repr,
)
def test_each_code_has_its_meaning(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault
    wrapped = exc.OperationalError("SELECT 1", None, error)
    assert isinstance(error, exc.TimeoutError) or fault_of(wrapped) is fault


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (mysql(1213), DatabaseBusy),
        (mysql(2003), DatabaseUnavailable),
        (mysql(1290), DatabaseUnavailable),
        (mysql(1045), AccessRefused),
        (mysql(1049), BadUrl),
        (mysql(1146), TablesMissing),
        (mysql(1054), SchemaMismatch),
        (mysql(1665), ConfigError),
        (exc.NoSuchModuleError("no plugin"), BadUrl),
        (ModuleNotFoundError("No module named 'pymysql'", name="pymysql"), MissingDriver),
        (RuntimeError("'cryptography' package is required for sha256_password"), MissingDriver),
    ],
    ids=repr,
)
def test_each_meaning_is_a_sentence_with_a_fix_and_without_the_password(
    error: Exception, kind: type[PillarboxError]
) -> None:
    found = connect_error(error, URL)
    assert type(found) is kind
    assert found.how_to_fix
    assert "s3cret" not in str(found)
    assert "db.example" in str(found)


def test_an_error_of_ours_is_passed_on() -> None:
    ours = TablesMissing("no tables")
    assert connect_error(ours, URL) is ours


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "mysql+pymysql://app:s3cret@db.example/shop?ssl_key_password=s3cret",
        "postgresql://db.example/shop?user=app&password=s3cret",
        "mysql://app:s3cret@db.example:port/shop",
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str) -> None:
    assert "s3cret" not in shown(url)
    assert "db.example" in shown(url)


def test_a_password_in_a_drivers_message_is_masked() -> None:
    error = pymysql.OperationalError(2003, "could not connect with s3cret")
    assert "s3cret" not in str(connect_error(error, URL))
