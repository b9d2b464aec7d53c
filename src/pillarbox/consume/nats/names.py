"""What a consumer's own subjects and durables are called.

Not ``<source>.<consumer>.dead`` as elsewhere: a stream with the subjects ``orders.>`` would take the dead letters of
``orders`` as well, and give them to everybody who reads it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

DEAD_STREAM: Final = "pillarbox-dead"
RETRY_STREAM: Final = "pillarbox-retry"
DEAD_SUBJECTS: Final = "pillarbox.dead.>"
RETRY_SUBJECTS: Final = "pillarbox.retry.>"

_PLAIN: Final = "!#$&'()+,:;=@[]^`{|}~"


def durable_of(consumer: str, source: str) -> str:
    """The consumer's name at the server for one of its sources; no dots, asterisks and the like are allowed there.

    One for each: with one for all, a process of an older version would get events of a source that it does not know.

    >>> durable_of("stock", "orders"), durable_of("stock.v2", "orders.*")
    ('stock@orders', 'stock%2Ev2@orders%2E%2A')
    """
    return f"{_token(consumer)}@{_token(source)}"


def dead_subject(source: str, consumer: str) -> str:
    """Where the consumer's dead letters of a source go.

    >>> dead_subject("orders.*", "stock")
    'pillarbox.dead.stock.orders.%2A'
    """
    return f"pillarbox.dead.{_token(consumer)}.{_tail(source)}"


def retry_subject(source: str, consumer: str) -> str:
    """Where a message of a source waits to come to this consumer again."""
    return f"pillarbox.retry.{_token(consumer)}.{_tail(source)}"


def _token(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def _tail(source: str) -> str:
    return quote(source, safe=f".{_PLAIN}")
