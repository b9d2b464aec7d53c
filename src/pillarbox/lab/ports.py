"""Where the parts of the lab meet. Each side of a seam is tested without the other.

``grounds`` make and read what is in the servers; ``strategies`` and ``consumers`` are the programs under test;
``running`` starts them as processes, strikes, and asks the grounds for facts; ``verdict`` judges; ``report`` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..event.destination import Destination
from .model import EventId, Facts, NotVisible, Plan, Record

PREFIX = "pillarbox_lab_"
"""Every name that the lab makes on a server begins so; it removes what it made, and nothing else."""


# Servers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, for a proxy in front of it."""

    host: str
    port: int


class DatabaseGround(Protocol):
    """One database server (or SQLite), and in it the two databases of one cell: the shop's and the consumers'.

    Tables: ``lab_alarm`` (event_id, device, raised_at by the database's clock) and the outbox at the shop;
    ``lab_notification`` (id, consumer, event_id, made_at; nothing unique about it, so that doing it twice shows) and
    the inbox with the consumers.
    """

    @property
    def name(self) -> str:
        """postgres, mysql, mariadb, sqlite."""
        ...

    @property
    def address(self) -> Address | None:
        """Where the server listens. None: no network in between."""
        ...

    @property
    def shop_url(self) -> str: ...

    @property
    def consumers_url(self) -> str: ...

    def through(self, url: str, port: int) -> str:
        """The same database through a proxy on 127.0.0.1."""
        ...

    def facts(self, event_ids: Sequence[EventId], records: Sequence[Record] | NotVisible) -> tuple[Facts, ...]:
        """All rows of these events, joined with the broker's records. Also of events that only the records know."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """Version, isolation level, autocommit, durability; NotVisible where something cannot be read."""
        ...

    def clock_offset(self) -> float:
        """The database's clock minus this process's, in seconds."""
        ...


class BrokerGround(Protocol):
    """One broker, and in it the destination of one cell."""

    @property
    def name(self) -> str:
        """kafka, rabbitmq, embedded."""
        ...

    @property
    def address(self) -> Address | None:
        """Of the node that the lab's link goes through. None: a proxy cannot stand in between."""
        ...

    @property
    def url(self) -> str: ...

    @property
    def destination(self) -> Destination: ...

    def source(self, consumer: str) -> str:
        """What this consumer reads: the topic, or a queue of its own bound to the exchange. Made when asked for."""
        ...

    def source_options(self) -> Mapping[str, Any]:
        """Options of the consumer's source: how soon a killed consumer's share goes to the next one."""
        ...

    def through(self, port: int) -> str | NotVisible:
        """The broker's URL through a proxy on 127.0.0.1, or why there is none (Kafka brokers advertise themselves)."""
        ...

    def records(self) -> tuple[Record, ...]:
        """Everything that the destination holds, in order; nothing is taken out."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Replicas, minimum and current in-sync replicas by partition; or type, length and members of the queues."""
        ...

    def committed(self, consumer: str) -> Mapping[str, Any]:
        """The group's committed offsets and the ends, or the queue's ready and unacknowledged messages."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """Version, and what the lab's own sender asks for: acks, idempotence, retries, confirms, transactions."""
        ...

    def clock_offset(self) -> float | NotVisible: ...


# Programs under test ------------------------------------------------------------------------------------------------

Reach = Callable[[str], None]
"""Says that a named point is reached; the lab may kill, freeze or fail the process there."""


class Sender(Protocol):
    """A broker's own client as an application would use it. Every call has a deadline."""

    def send(self, event_id: str, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send and wait for the broker's acknowledgement. Errors are the client's own."""
        ...

    def begin(self) -> None:
        """Begin the broker's own transaction, where it has one (Kafka)."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Role:
    """A process of a cell: ``main`` is called in a process of its own with ``task``; ``name`` is the lane's word."""

    name: str
    main: Callable[[Mapping[str, Any]], None]


class Strategy(Protocol):
    """A way of sending: which processes it has, and where the fault of each window is."""

    id: str  # S1 … S6, S5 twice: S5-row, S5-partition
    name: str
    summary: str
    needs_relay: bool

    def plan(self, window: str, database: str, broker: str) -> Plan: ...
