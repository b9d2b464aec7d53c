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
        removed = remove(parsed, bases, {f"{name}.audit": None for name in bases})
        for one in claims:
            if one.name in removed:
                forget(one.name)
    return removed


def _is_marked(name: str, queues: Mapping[str, Mapping[str, Any]]) -> bool:
    return queues.get(name, {}).get(ARGUMENT) == MARK


def _belongs(name: str, bases: Collection[str]) -> bool:
    return any(name == base or name.startswith(f"{base}.") for base in bases)


def remove(parsed: RabbitUrl, bases: Collection[str], queues: Collection[str]) -> list[str]:
    """Delete the queues that are known or listed, and then the exchanges; returns what was there."""
    if not bases:
        return []
    names = set(queues)
    with suppress(NoManagement):  # then the retry and dead-letter queues of consumers stay
        names |= {name for name in Management(parsed).names("queues") if _belongs(name, bases)}
    removed: list[str] = []
    with open_channel(parsed) as channel:
        there = [("queue", name) for name in sorted(names)] + [("exchange", name) for name in sorted(bases)]
        for kind, name in there:
            if not _exists(channel, kind, name):
                channel = channel.connection.channel()  # the answer that there is none has closed it
                continue
            channel.queue_delete(name) if kind == "queue" else channel.exchange_delete(name)
            removed.append(name)
    return removed


def _exists(channel: BlockingChannel, kind: str, name: str) -> bool:
    try:
        if kind == "queue":
            channel.queue_declare(name, passive=True)
        else:
            channel.exchange_declare(name, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return False
    return True


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
