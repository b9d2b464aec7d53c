"""Names of the lab on a RabbitMQ virtual host: told from others by their mark, and removed.

The mark is an argument of each exchange and queue. Listing names takes the management API; without it, foreign names
cannot be seen (and cannot be met: the lab's own are new), and consumers' queues of a killed run end by themselves after
a day without use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...errors import BrokerUnavailable
from ...publish.rabbitmq.refusals import reason_of
from ...publish.rabbitmq.url import RabbitUrl, parse_rabbitmq_url
from .claims import MARK, abandoned, base_of, claimed_here, forget
from .rabbitmq_management import Management, NoManagement

CLAIMED: Final = "rabbitmq"
ARGUMENT: Final = "x-pillarbox-lab"
_NOT_FOUND: Final = 404


def foreign_queues(url: str, prefix: str) -> list[str]:
    """Exchanges and queues whose names begin so and that no run of the lab has made; none where none can be listed."""
    api = Management(parse_rabbitmq_url(url, connect_timeout=5.0))
    try:
        exchanges, queues = api.names("exchanges"), api.names("queues")
    except NoManagement:
        return []
    marked = {name for name, arguments in exchanges.items() if arguments.get(ARGUMENT) == MARK}
    ours = {name for name in marked if base_of(name) == name} | claimed_here()
    found = {name for name in (*exchanges, *queues) if name.startswith(prefix)}
    return sorted(name for name in found if not _belongs(name, ours) and not _is_marked(name, queues))


def remove_left_queues(url: str) -> list[str]:
    """Remove the exchanges and queues that killed runs on this machine have left; returns their names."""
    parsed = parse_rabbitmq_url(url, connect_timeout=5.0)
    with abandoned(CLAIMED) as claims:
        bases = {one.name for one in claims}
        api = Management(parsed)
        left = _listed(api, bases) if bases else set()
        if left is None:  # no names can be listed: ask for those that every run makes
            left = _probed(parsed, bases | {f"{name}.audit" for name in bases})
        remove(parsed, api, left & bases, left - bases)
        for one in claims:
            if one.name in left:
                forget(one.name)
    return sorted(left)


def _is_marked(name: str, queues: Mapping[str, Mapping[str, Any]]) -> bool:
    return queues.get(name, {}).get(ARGUMENT) == MARK


def _belongs(name: str, bases: Collection[str]) -> bool:
    return any(name == base or name.startswith(f"{base}.") for base in bases)


def remove(parsed: RabbitUrl, api: Management, exchanges: Collection[str], queues: Collection[str]) -> None:
    """Delete the queues, those that belong to the exchanges and can be listed, and then the exchanges."""
    belonging = _listed(api, exchanges) or set()  # else the retry and dead-letter queues of consumers stay
    with open_channel(parsed) as channel:
        for name in sorted(belonging.union(queues).difference(exchanges)):
            channel.queue_delete(name)  # a missing one is no error, neither here nor below
        for name in sorted(exchanges):
            channel.exchange_delete(name)


def _listed(api: Management, bases: Collection[str]) -> set[str] | None:
    """The names that are there of exchanges and queues that belong to ``bases``; None where they cannot be listed."""
    try:
        return {name for kind in ("exchanges", "queues") for name in api.names(kind) if _belongs(name, bases)}
    except NoManagement:
        return None


def _probed(parsed: RabbitUrl, names: Collection[str]) -> set[str]:
    """Which of these are there, as an exchange or as a queue."""
    found: set[str] = set()
    with open_channel(parsed) as channel:
        for name in names:
            for ask in ("queue_declare", "exchange_declare"):
                if channel.is_closed:
                    channel = channel.connection.channel()  # the answer that there is none closes it
                try:
                    getattr(channel, ask)(name, passive=True)
                    found.add(name)
                except ChannelClosedByBroker as error:
                    if error.reply_code != _NOT_FOUND:
                        raise
    return found


@contextmanager
def open_channel(parsed: RabbitUrl) -> Iterator[BlockingChannel]:
    """A channel on a connection of its own. Raises BrokerUnavailable (PB-005)."""
    try:
        connection = pika.BlockingConnection(list(parsed.nodes))
    except (AMQPError, OSError) as error:
        raise BrokerUnavailable(f"RabbitMQ at {parsed.shown} does not answer: {reason_of(error)}.") from error
    try:
        yield connection.channel()
    except (AMQPError, OSError) as error:
        raise BrokerUnavailable(f"RabbitMQ at {parsed.shown}: {reason_of(error)}.") from error
    finally:
        with suppress(AMQPError):  # it is lost already
            if connection.is_open:
                connection.close()
