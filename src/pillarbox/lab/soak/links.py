"""The links to the servers, each through a proxy of ours that can cut, freeze and half-close them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol

from ..model import NotVisible
from ..ports import Address, BrokerGround, DatabaseGround
from ..proxy import FaultProxy
from .happened import Happened
from .schedule import Link, LinkName

_DATABASES: Final[tuple[LinkName, ...]] = ("shop", "consumers")


class Breakable(Protocol):
    """A proxy, or those of all brokers of a cluster."""

    def cut(self) -> None: ...

    def freeze(self) -> None: ...

    def lose_answers(self) -> None: ...

    def half_open(self) -> None: ...

    def refuse(self) -> None: ...

    def heal(self) -> None: ...


class Links:
    """``urls`` go through the proxies; ``absent`` says of which link there is none, and why."""

    def __init__(
        self,
        urls: dict[LinkName, str],
        proxies: dict[LinkName, Breakable],
        absent: dict[LinkName, str],
        tell: Callable[[Happened], None],
    ) -> None:
        self.urls = urls
        self.absent = absent
        self._proxies = proxies
        self._tell = tell
        self._heal_at: dict[LinkName, float] = {}

    def strike(self, fault: Link) -> bool:
        """Break the link; False where it cannot be broken, or is broken already."""
        proxy = self._proxies.get(fault.link)
        if proxy is None or fault.link in self._heal_at:
            return False
        match fault.how:
            case "cut":
                proxy.cut()
            case "freeze":
                proxy.freeze()
            case "lose answers":
                proxy.lose_answers()
            case "half open":
                proxy.half_open()
            case "refuse":
                proxy.refuse()
        if fault.how != "cut":
            self._heal_at[fault.link] = time.monotonic() + fault.seconds
        self._tell(Happened(time.time(), "link", fault.link, fault.how, fault.seconds or None))
        return True

    def tend(self) -> None:
        """Heal what is due."""
        now = time.monotonic()
        for link, at in list(self._heal_at.items()):
            if now >= at:
                del self._heal_at[link]
                self._proxies[link].heal()

    def heal_all(self) -> None:
        """As new."""
        self._heal_at.clear()
        for proxy in self._proxies.values():
            proxy.heal()


@contextmanager
def linked(
    database: DatabaseGround, broker: BrokerGround, tell: Callable[[Happened], None], *, kafka_via: str | None = None
) -> Iterator[Links]:
    """Proxies in front of whatever has a network address. ``kafka_via``: see :mod:`pillarbox.lab.kafka.via`."""
    urls: dict[LinkName, str] = {
        "shop": database.shop_url,
        "consumers": database.consumers_url,
        "broker": broker.url,
    }
    proxies: dict[LinkName, Breakable] = {}
    absent: dict[LinkName, str] = {}
    with ExitStack() as cleanup:

        def proxy_to(address: Address) -> FaultProxy:
            return cleanup.enter_context(FaultProxy(address.host, address.port))

        for link in _DATABASES:
            if database.address is None:
                absent[link] = "a file, no network"
                continue
            proxy = proxy_to(database.address)
            proxies[link], urls[link] = proxy, database.through(urls[link], proxy.port)
        if kafka_via is not None:
            from ..kafka.via import kafka_via as open_via

            via = cleanup.enter_context(open_via(kafka_via))
            proxies["broker"], urls["broker"] = via, via.url
        elif broker.address is None:
            absent["broker"] = _why_not(broker)
        else:
            proxy = proxy_to(broker.address)
            found = broker.through(proxy.port)
            if isinstance(found, NotVisible):
                absent["broker"] = found.why
            else:
                proxies["broker"], urls["broker"] = proxy, found
        yield Links(urls, proxies, absent, tell)


def _why_not(broker: BrokerGround) -> str:
    found = broker.through(0)
    return found.why if isinstance(found, NotVisible) else "no single network address"
