"""Errors that reach us as the driver raised them, past SQLAlchemy."""

import pymysql
import pytest
from sqlalchemy import create_engine

from pillarbox.errors import DatabaseUnavailable
from pillarbox.store.failures import Fault, fault_of
from pillarbox.store.transactions import Transactions


def test_a_connection_that_is_lost_while_it_is_set_up_is_an_outage_and_tried_once_more() -> None:
    """SQLAlchemy sets the isolation level on the driver's connection, and lets its errors through."""
    attempts = 0

    def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise pymysql.OperationalError(2013, "Lost connection to MySQL server during query")

    transactions = Transactions(create_engine("mysql+pymysql://u:p@127.0.0.1:1/d"), pause=lambda seconds: None)
    with pytest.raises(DatabaseUnavailable, match="Lost connection"):
        transactions.repeat(attempt)
    assert attempts == 2


def test_a_broken_protocol_is_a_lost_connection() -> None:
    assert fault_of(pymysql.InternalError("Packet sequence number wrong - got 1 expected 0")) is Fault.LOST
