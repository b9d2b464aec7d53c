"""Where an event goes: a topic, or an exchange with a routing key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import NoDestination
from .limits import MAX_NAME, check_name


class Destination(NamedTuple):
    """A broker address as the outbox stores it.

    ``routing_key`` None means: the broker's natural choice (Kafka has none, RabbitMQ takes the event type).

    >>> Topic("orders")
    Destination(name='orders', routing_key=None)
    >>> Exchange("billing", "paid")
    Destination(name='billing', routing_key='paid')
    """

    name: str
    routing_key: str | None = None


def Topic(name: str) -> Destination:
    """A Kafka topic, an embedded topic, a NATS subject, or on RabbitMQ the exchange of that name with the event type as
    routing key."""
    if not isinstance(name, str) or not name.strip():
        raise NoDestination(f"The topic is empty ({name!r}).")
    return Destination(check_name("topic", name))


def Exchange(name: str, routing_key: str) -> Destination:
    """A RabbitMQ exchange and routing key; on NATS the subject ``name.routing_key``.

    RabbitMQ's default exchange is ``""``: its routing key is a queue's name.
    """
    if not isinstance(name, str) or not isinstance(routing_key, str):
        raise NoDestination(f"Exchange takes two strings, got {name!r} and {routing_key!r}.")
    if not name and not routing_key:
        raise NoDestination("The default exchange needs a routing key: the name of the queue.")
    check_name("routing key", routing_key, empty=True, most=255)
    return Destination(check_name("exchange", name, empty=True), routing_key)


To = str | Destination | Sequence[str | Destination]
"""What ``to=`` accepts. A Destination is itself a tuple and a str a sequence; the code tells them apart by type."""


def destinations(to: To) -> tuple[Destination, ...]:
    """Turn what the user wrote into destinations; a plain string is a topic."""
    if isinstance(to, str):
        return (Topic(to),)
    if isinstance(to, Destination):
        if to.routing_key is None:
            return (Topic(to.name),)
        return (Exchange(to.name, to.routing_key),)
    if isinstance(to, (list, tuple)):
        found = tuple(one for part in to for one in destinations(part))
        if not found:
            raise NoDestination("The list of destinations is empty.")
        if len(set(found)) != len(found):
            raise NoDestination(f"A destination is named twice: {[d.name for d in found]}.")
        return found
    raise NoDestination(f"`to` takes a topic name, Topic, Exchange or a list of them, got {type(to).__name__}.")


__all__ = ["MAX_NAME", "Destination", "Exchange", "To", "Topic", "destinations"]
