"""Reading everything that the servers hold after a soak, in a few statements: what :mod:`.accounts` compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from ...store.engines import BEGIN_OPTION, Timeouts, connect_error, relay_engine
from ..model import Record
from .accounts import Books, Told
from .roles import KEY_HEADER, NUMBER_HEADER

_BUSINESS = "SELECT event_id, device FROM lab_alarm"
_OUTBOX = "SELECT event_id, id FROM outbox_event"
_READY = "SELECT e.event_id, 'ready' FROM outbox_ready r JOIN outbox_event e ON e.id = r.id"
_PARKED = "SELECT e.event_id, p.state FROM outbox_parked p JOIN outbox_event e ON e.id = p.id"
_SENT = "SELECT e.event_id FROM outbox_receipt r JOIN outbox_event e ON e.id = r.id"
_MARKS = "SELECT event_id FROM inbox_event WHERE consumer = :consumer"
_APPLIED = "SELECT event_id FROM lab_notification WHERE consumer = :consumer"


def read_books(shop_url: str, consumers_url: str, consumer: str, records: Sequence[Record]) -> Books:
    """All rows of both databases, joined with nothing. Raises DatabaseUnavailable (PB-004) when one does not answer."""
    with _reading(shop_url) as shop, _reading(consumers_url) as consumers:
        return Books(
            business=dict(_rows(shop, _BUSINESS)),
            outbox={event_id: int(number) for event_id, number in _rows(shop, _OUTBOX)},
            waiting=dict([*_rows(shop, _READY), *_rows(shop, _PARKED)]),
            sent=[event_id for (event_id,) in _rows(shop, _SENT)],
            told=[told(record) for record in records],
            marks=[event_id for (event_id,) in _rows(consumers, _MARKS, consumer=consumer)],
            applied=[event_id for (event_id,) in _rows(consumers, _APPLIED, consumer=consumer)],
        )


def told(record: Record) -> Told:
    """What the accounting wants of a record; one without the soak's headers is nobody's, and shows as a ghost."""
    return Told(
        record.event_id, record.headers.get(KEY_HEADER, ""), int(record.headers.get(NUMBER_HEADER, "0")), record.place
    )


@contextmanager
def _reading(url: str) -> Iterator[Connection]:
    engine = relay_engine(url, pool_size=1, timeouts=Timeouts(statement=120))
    try:
        with engine.connect().execution_options(**{BEGIN_OPTION: "DEFERRED"}) as connection:
            yield connection
    except SQLAlchemyError as error:
        raise connect_error(error, url) from error
    finally:
        engine.dispose()


def _rows(connection: Connection, sql: str, **values: str) -> Iterator[Any]:
    yield from connection.execute(text(sql), values)
