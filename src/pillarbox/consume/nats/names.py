"""What a consumer's own subjects and durables are called.

Not ``<source>.<consumer>.dead`` as elsewhere: a stream with the subjects ``orders.>`` would take the dead letters of
``orders`` as well, and give them to everybody who reads it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

DEAD_STREAM: Final = "pillarbox-dead"
RETRY_STREAM: Final = "pillarbox-retry"
DEAD_SUBJECTS: Final = "pillarbox.dead.>"
RETRY_SUBJECTS: Final = "pillarbox.retry.>"

_PLAIN: Final = "!#$&'()+,:;=@[]^`{|}~"


def durable_of(consumer: str) -> str:
    """The consumer's name at the server, which allows no dot.

    >>> durable_of("stock"), durable_of("stock.v2")
    ('stock', 'stock%2Ev2')
    """
    return quote(consumer, safe="").replace(".", "%2E")


def dead_subject(source: str, consumer: str) -> str:
    """Where the consumer's dead letters of a source go.

    >>> dead_subject("orders.*", "stock")
    'pillarbox.dead.stock.orders.%2A'
    """
    return f"pillarbox.dead.{durable_of(consumer)}.{_tail(source)}"


def retry_subject(source: str, consumer: str) -> str:
    """Where a message of a source waits to come to this consumer again."""
    return f"pillarbox.retry.{durable_of(consumer)}.{_tail(source)}"


def retry_filter(consumer: str) -> str:
    """The subjects of all that waits for this consumer."""
    return f"pillarbox.retry.{durable_of(consumer)}.>"


def source_of(subject: str) -> str:
    """The source that a dead letter's or a retry's subject speaks of."""
    return unquote(subject.split(".", 3)[3])


def _tail(source: str) -> str:
    return quote(source, safe=f".{_PLAIN}")
