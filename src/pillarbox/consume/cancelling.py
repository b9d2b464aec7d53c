"""Dropping the statement that another thread is waiting for: each driver has its own way, and keeps its connection."""

from __future__ import annotations

import logging
from typing import Any, Final

from sqlalchemy.engine import Connection

_log = logging.getLogger("pillarbox.consume")

CANCEL_SECONDS: Final = 5.0


def cancel_statement(connection: Connection) -> None:
    """Ask the server, from another thread, to end the statement that runs on ``connection``; else nothing happens.

    PostgreSQL by a cancel request, SQLite by an interrupt, MySQL by KILL QUERY from a connection of its own. A driver
    that knows no way is left alone. Failing is logged and no error: the server ends the statement some day.
    """
    try:
        driver: Any = connection.connection.driver_connection
        if hasattr(driver, "interrupt"):
            driver.interrupt()
        elif hasattr(driver, "cancel_safe"):
            driver.cancel_safe(timeout=CANCEL_SECONDS)
        elif hasattr(driver, "cancel"):
            driver.cancel()
        elif hasattr(driver, "thread_id"):
            _kill_query(connection, int(driver.thread_id()))
    except Exception as error:  # noqa: BLE001 - any driver, in any state
        _log.warning("the statement of a handler that is out of time could not be cancelled: %s", error)


def _kill_query(connection: Connection, thread_id: int) -> None:
    pool = connection.engine.pool.recreate()  # the engine's own may have no connection to spare
    try:
        other = pool.connect()
        try:
            other.cursor().execute(f"KILL QUERY {thread_id}")
        finally:
            other.close()
    finally:
        pool.dispose()
