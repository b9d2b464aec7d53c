"""The servers under the lab: places of its own on them, made for one cell, read, and removed.

>>> with database_ground(None, "W2-S5-row") as database, broker_ground(None, "W2-S5-row") as broker:
...     database.name, broker.name, database.facts([], broker.records())
('sqlite', 'embedded', ())
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

from ...errors import BadUrl, LabError
from ..ports import PREFIX, BrokerGround, DatabaseGround
from .claims import Claim, claim
from .folders import remove_left_folders

__all__ = ["broker_ground", "database_ground", "refuse_foreign", "remove_leftovers"]


log = logging.getLogger("pillarbox.lab")


class _Broker(NamedTuple):
    """A kind of broker: what it is claimed as, and what it offers, loaded when a URL of its scheme is used."""

    kind: str
    ground: str
    foreign: str
    remove: str


_KAFKA: Final = _Broker("kafka", "kafka.kafka_ground", "kafka_topics.foreign_topics", "kafka_topics.remove_left_topics")
_RABBITMQ: Final = _Broker(
    "rabbitmq", "rabbitmq.rabbitmq_ground", "rabbitmq_names.foreign_queues", "rabbitmq_names.remove_left_queues"
)
BROKERS: Final = {"kafka": _KAFKA, "amqp": _RABBITMQ, "amqps": _RABBITMQ}
"""Brokers on servers, by the URL's scheme."""

_PASSING_SECONDS: Final = 3.0


@contextmanager
def database_ground(url: str | None, cell: str) -> Iterator[DatabaseGround]:
    """Two databases for one cell, on the server at ``url``; None: SQLite files in a temporary folder.

    They are gone when the block ends, also after an error. Raises BadUrl (PB-002), DatabaseUnavailable (PB-004),
    AccessRefused (PB-008) where the user may not create databases, or LabError (PB-100).
    """
    if url is None:
        from .sqlite import sqlite_ground

        with claim("folder", cell) as claimed, sqlite_ground(claimed) as files:
            yield files
        return
    from .servers import ground_on_server

    with ground_on_server(url, cell) as ground:
        yield ground


@contextmanager
def broker_ground(url: str | None, cell: str) -> Iterator[BrokerGround]:
    """A destination for one cell, on the broker at ``url``; None: the embedded log in a temporary folder.

    It is gone when the block ends, also after an error. Raises BadUrl (PB-002), BrokerUnavailable (PB-005) or LabError
    (PB-100).
    """
    if url is None:
        from .embedded import embedded_ground

        with claim("folder", cell) as claimed, embedded_ground(claimed) as file:
            yield file
        return
    broker = _broker_of(url)
    make: Callable[[str, Claim], AbstractContextManager[BrokerGround]] = _loaded(broker.ground)
    with claim(broker.kind, cell) as claimed, make(url, claimed) as ground:
        yield ground


def refuse_foreign(database_url: str | None, broker_url: str | None, *, prefix: str = PREFIX) -> None:
    """Raise LabError (PB-100) where names that begin with ``prefix`` exist and no run of the lab has made them.

    Runs of the lab that go on at the same time, also from other machines, and what killed ones have left are no reason.
    """
    for server, names in (
        ("database", _foreign_databases(database_url, prefix)),
        ("broker", _foreign_names(broker_url, prefix)),
    ):
        if names:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise LabError(
                f"The {server} has names that begin with {prefix} and are not the lab's: {shown}.",
                fix=f"Rename or remove them, or give the lab another {server}.",
            )


def remove_leftovers(database_url: str | None, broker_url: str | None) -> list[str]:
    """Remove what killed runs of the lab on this machine have left on these servers, and in temporary folders.

    Returns the names. A run that lives is left alone, and so is what runs on other machines have left.
    """
    removed = remove_left_folders()
    if database_url is not None:
        from .servers import remove_left_databases

        removed += remove_left_databases(database_url)
    if broker_url is not None:
        removed += _loaded(_broker_of(broker_url).remove)(broker_url)
    for name in removed:
        log.info("removed %s, which a killed run of the lab had left", name)
    return removed


def _foreign_databases(url: str | None, prefix: str) -> list[str]:
    if url is None:
        return []
    from .servers import foreign_databases

    return _in_the_end(lambda: foreign_databases(url, prefix))


def _foreign_names(url: str | None, prefix: str) -> list[str]:
    if url is None:
        return []
    look = _loaded(_broker_of(url).foreign)
    return _in_the_end(lambda: look(url, prefix))


def _in_the_end(look: Callable[[], list[str]]) -> list[str]:
    """What is seen twice: another run of the lab may be about to mark a name, or to remove it."""
    until = time.monotonic() + _PASSING_SECONDS
    while (names := look()) and time.monotonic() < until:
        time.sleep(0.1)
    return names


def _broker_of(url: str) -> _Broker:
    scheme = url.partition(":")[0].lower()
    if scheme == "embedded":
        raise BadUrl("The lab makes its own embedded log.", fix="Leave --broker out, or name a server.")
    if scheme not in BROKERS:
        raise BadUrl(f"The lab knows kafka:// and amqp:// brokers, got {scheme!r}.")
    return BROKERS[scheme]


def _loaded(what: str) -> Any:
    module, _, name = what.partition(".")
    return getattr(import_module(f".{module}", __package__), name)
