"""Proxies in front of all brokers of a Kafka cluster.

A Kafka client asks one broker for the addresses of all, and goes there: so a proxy can only stand in between when its
address is the one that the broker advertises. Brokers do that on a listener of their own, which costs them nothing::

    listeners=PLAINTEXT://:9092,LAB://127.0.0.1:9192
    advertised.listeners=PLAINTEXT://broker1:9092,LAB://127.0.0.1:9292
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LAB:PLAINTEXT,CONTROLLER:PLAINTEXT

Nobody listens on 9292 until the lab's proxy does, and it goes on to 9192: ``127.0.0.1:9292=127.0.0.1:9192``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import CannotListen, ConfigError, LabError
from ..ports import Address
from ..proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Sequence

HOW: Final = (
    "Give each broker a listener that advertises a port of this machine, and name all of them with "
    "--kafka-via ADVERTISED=REAL,… (docs/testing-with-the-lab.md#kafka-through-the-proxy)."
)
_HERE = ("127.0.0.1", "localhost")
_ANSWER_DEADLINE = 10.0  # seconds for the cluster to say which addresses it advertises


@dataclass(frozen=True, slots=True)
class Detour:
    """One broker: at ``advertised``, where clients are told to go, the proxy listens; at ``real`` the broker itself."""

    advertised: Address
    real: Address


def parse_via(text: str) -> tuple[Detour, ...]:
    """``advertised=real`` of every broker, separated by commas; raises ConfigError (PB-001) for anything else.

    >>> [detour.real.port for detour in parse_via("127.0.0.1:9292=10.0.0.5:9192, localhost:9293=10.0.0.6:9192")]
    [9192, 9192]
    """
    detours = tuple(_detour(part.strip()) for part in text.split(",") if part.strip())
    if not detours or len({detour.advertised.port for detour in detours}) < len(detours):
        raise ConfigError(f"kafka_via names no broker, or one port twice: {text!r}.", fix=HOW)
    return detours


def why_not(text: str) -> str | None:
    """Why no proxy can stand before the brokers named by ``text`` now, or None when one can.

    A listener that was configured but is not there yet (brokers that run since before) is such a reason.
    """
    for detour in parse_via(text):
        try:
            socket.create_connection((detour.real.host, detour.real.port), timeout=2).close()
        except OSError as error:
            return f"no broker listens on {_said(detour.real)} ({error}); was it restarted with that listener?"
    return None


class KafkaVia:
    """The proxies of all brokers, as one. ``bootstrap`` and ``url`` lead through them."""

    def __init__(self, detours: Sequence[Detour], proxies: Sequence[FaultProxy]) -> None:
        self.detours = tuple(detours)
        self.proxies = tuple(proxies)
        self.bootstrap: str = ",".join(_said(detour.advertised) for detour in detours)
        # A client connects to a partition's leader when it first sends to it. While answers are lost that could not
        # succeed, and the message would never arrive: so it connects to all brokers as soon as it knows them.
        self.url = f"kafka://{self.bootstrap}?enable.sparse.connections=false"

    @property
    def lost(self) -> int:
        """Bytes of answers that no client got since the start."""
        return sum(proxy.lost for proxy in self.proxies)

    def cut(self) -> None:
        """Reset every connection to every broker."""
        self._all(FaultProxy.cut)

    def lose_answers(self) -> None:
        """What brokers say from now on is lost; what clients send still reaches them."""
        self._all(FaultProxy.lose_answers)

    def freeze(self) -> None:
        """Keep connections open and let nothing through."""
        self._all(FaultProxy.freeze)

    def thaw(self) -> None:
        """Let everything through again."""
        self._all(FaultProxy.thaw)

    def refuse(self) -> None:
        """Reset every connection, and new ones as soon as they come."""
        self._all(FaultProxy.refuse)

    def half_open(self) -> None:
        """Close the connections that are open now at the brokers, and tell their clients nothing."""
        self._all(FaultProxy.half_open)

    def heal(self) -> None:
        """As new; connections of which something was lost are reset."""
        self._all(FaultProxy.heal)

    def _all(self, order: Callable[[FaultProxy], None]) -> None:
        for proxy in self.proxies:
            order(proxy)


@contextmanager
def kafka_via(text: str) -> Iterator[KafkaVia]:
    """Open the proxies for every broker of ``text`` (see :func:`parse_via`), and see that clients stay behind them.

    The advertised ports are fixed, so there is one of these at a time: cells that strike through it take turns.

    Raises LabError (PB-100) when a broker does not answer through its proxy, or advertises an address that is no
    proxy's: then a client would go past them, and a fault would strike nobody.
    """
    detours = parse_via(text)
    with ExitStack() as stack:
        proxies = [stack.enter_context(_proxy(detour)) for detour in detours]
        via = KafkaVia(detours, proxies)
        _refuse_others(via)
        yield via


def _proxy(detour: Detour) -> FaultProxy:
    try:
        return FaultProxy(detour.real.host, detour.real.port, listen_on=detour.advertised.port)
    except CannotListen as error:
        raise LabError(f"{error.message} It is what a Kafka broker advertises; does another lab run?") from error


def _refuse_others(via: KafkaVia) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    known = {detour.advertised.port for detour in via.detours}
    for detour in via.detours:
        client = AdminClient({"bootstrap.servers": _said(detour.advertised), "log_level": 0})
        try:
            brokers = client.list_topics(timeout=_ANSWER_DEADLINE).brokers.values()
        except KafkaException as error:
            raise LabError(f"No broker answers at {_said(detour.real)} through the proxy: {error}.", fix=HOW) from error
        for broker in brokers:
            if broker.host not in _HERE or broker.port not in known:
                raise LabError(
                    f"Broker {broker.id} advertises {broker.host}:{broker.port}, which is none of the proxies: "
                    "clients would go past them.",
                    fix=HOW,
                )


def _detour(text: str) -> Detour:
    advertised, equals, real = text.partition("=")
    if not equals:
        raise ConfigError(f"kafka_via takes ADVERTISED=REAL, not {text!r}.", fix=HOW)
    detour = Detour(_address(advertised), _address(real))
    if detour.advertised.host not in _HERE:
        raise ConfigError(f"The proxy listens on 127.0.0.1, so a broker cannot advertise {advertised!r}.", fix=HOW)
    return detour


def _address(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"kafka_via takes host:port, not {text!r}.", fix=HOW)
    return Address(host.strip("[]"), int(port))


def _said(address: Address) -> str:
    return f"{address.host}:{address.port}"
