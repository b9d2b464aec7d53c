"""Everything that one cell works with: its servers, its processes, its schedule, and the links that can be struck."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from ..errors import LabError
from .model import CellKey, EventId, NotVisible, Planned
from .ports import BrokerGround, DatabaseGround
from .process import DEADLINE, Process, Reached
from .processes import Crew
from .proxy import fault_proxy
from .recorder import Recorder
from .schedule import Stroke

LEASE: Final = 1.6
"""Seconds until the events of a relay that was struck go to the next one. By default it is a minute: long to watch."""

BROKER_DEADLINE: Final = 0.7
"""Seconds that such a relay waits for the broker's answer; it must be below half the lease."""

CALM: Final = (20.0, 8.0)
"""Lease and deadline of a relay that nobody strikes: what it sends late on a busy machine must not be sent twice."""

CONSUMER_LEASE: Final = 1.0
"""Seconds until a dead consumer's share of the embedded log goes to the next one."""

REST: Final = 40.0
"""Seconds within which a cell comes to rest after its faults; otherwise it is in trouble."""


class Link(Protocol):
    """A way to a server that can be struck: a proxy, or the proxies of all brokers of a cluster."""

    @property
    def lost(self) -> int:
        """Bytes of answers that no client got."""
        ...

    def lose_answers(self) -> None:
        """What the server says from now on is lost."""
        ...

    def refuse(self) -> None:
        """Reset every connection, and new ones."""
        ...

    def cut(self) -> None:
        """Reset every connection. New ones are accepted."""
        ...

    def heal(self) -> None:
        """As new."""
        ...


BrokerLink = Callable[[], AbstractContextManager[tuple[Link, str]]]
"""Opens the link to Kafka's brokers, where the run has been given one: the link, and the URL through it."""


class Cancelled(Exception):
    """The run is being ended; the cell is left as it is."""


@dataclass(slots=True)
class Stage:
    """One cell at work. ``names`` has the consumers' full names by the ways' ids.

    ``struck`` are the events that a fault has met; those ``apart`` only opened a connection, and are not the cell's.
    """

    key: CellKey
    plan: Planned
    strokes: Sequence[Stroke]
    seed: int
    crew: Crew
    database: DatabaseGround
    broker: BrokerGround
    log: Path
    cancelled: threading.Event
    broker_link: BrokerLink | None = None
    recorder: Recorder = field(default_factory=Recorder)
    processes: list[Process] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    struck: set[EventId] = field(default_factory=set)
    apart: set[EventId] = field(default_factory=set)

    def check(self) -> None:
        """Raise Cancelled when the run is being ended."""
        if self.cancelled.is_set():
            raise Cancelled

    # Processes ----------------------------------------------------------------------------------------------------

    def application(
        self,
        strategy: str,
        *,
        waits_at: Collection[str] = (),
        shop_url: str | None = None,
        broker_url: str | None = None,
    ) -> Process:
        """An application that waits for alarms to be handed to it."""
        task = {
            "strategy": strategy,
            "shop_url": shop_url or self.database.shop_url,
            "broker_url": broker_url or self.broker.url,
            "destination": list(self.broker.destination),
            "transactional_id": self.transactional_id,
        }
        return self._start("application", task, {"application.ready", *waits_at})

    def relay(self, ownership: str, *, waits_at: Collection[str] = (), broker_url: str | None = None) -> Process:
        """The product's relay. One that is to be struck waits at a point, and has a short lease."""
        lease, deadline = (LEASE, BROKER_DEADLINE) if waits_at else CALM
        task = {
            "shop_url": self.database.shop_url,
            "broker_url": broker_url or self.broker.url,
            "ownership": ownership,
            "lease": lease,
            "broker_deadline": deadline,
            "batch": 500,
        }
        return self._start("relay", task, waits_at)

    def consumer(
        self,
        way: str,
        *,
        workers: int = 1,
        limit: int = 50,
        waits_at: Collection[str] = (),
        broker_url: str | None = None,
    ) -> Process:
        """A consumer of this way; all of one way are one group."""
        name = self.name_of(way)
        task = {
            "way": way,
            "consumer": name,
            "consumers_url": self.database.consumers_url,
            "broker_url": broker_url or self.broker.url,
            "source": self.broker.source(name),
            "options": self._source_options(),
            "workers": workers,
            "limit": limit,
        }
        return self._start("consumer", task, waits_at)

    def _start(self, role: str, task: Mapping[str, Any], waits_at: Collection[str]) -> Process:
        self.check()
        process = self.crew.start(role, task, waits_at=waits_at, log=self.log)
        self.processes.append(process)
        self.recorder.follow(process)
        return process

    def _source_options(self) -> Mapping[str, Any]:
        """So that who comes after a dead consumer need not wait long: for a lease, or not at all as the same member."""
        options = dict(self.broker.source_options())
        match self.broker.name:
            case "embedded":
                return {**options, "lease": CONSUMER_LEASE}
            case "kafka":
                return {**options, "config": {**options.get("config", {}), "group.instance.id": "lab-1"}}
            case _:
                return options

    def name_of(self, way: str) -> str:
        """The consumer's name on the servers, which is this cell's alone."""
        return self.names.setdefault(way, f"{self.broker.destination.name}.{way}")

    @property
    def transactional_id(self) -> str:
        """The application's, for Kafka: a restarted process has the same."""
        return f"{self.broker.destination.name}.application"

    def next(self, process: Process, timeout: float = DEADLINE) -> Reached | None:
        """Its next report, None when it has ended. LabError when neither comes."""
        end = time.monotonic() + timeout
        while True:
            self.check()
            found = process.next(min(0.5, max(0.0, end - time.monotonic())))
            if found is not None or process.is_over:
                return found
            if time.monotonic() > end:
                last = process.reached[-1].point if process.reached else "its start"
                raise LabError(f"The {process.role} process {process.pid} said nothing for {timeout:g} s after {last}.")

    def end_all(self) -> None:
        """SIGKILL to whatever still runs."""
        for process in self.processes:
            if process.exit is None:
                process.kill()

    # Servers ------------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str, seconds: float = REST, pause: float = 0.03) -> None:
        """Wait for ``condition``; LabError names ``what`` was waited for."""
        end = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > end:
                raise LabError(f"{self.key}: {what} did not come within {seconds:g} s.")
            time.sleep(pause)

    def quiet_within(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for ``condition`` at most so long; returns whether it came."""
        end = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > end:
                return False
            time.sleep(0.03)
        return True

    @contextmanager
    def link_to(self, server: Literal["database", "broker"]) -> Iterator[tuple[Link, str] | None]:
        """A link that can be struck, and the URL through it; None where nothing can stand in between."""
        if server == "broker" and self.broker_link is not None:
            with self.broker_link() as found:
                yield found
            return
        ground = self.database if server == "database" else self.broker
        if ground.address is None:
            yield None
            return
        with fault_proxy(ground.address.host, ground.address.port) as proxy:
            if server == "database":
                yield proxy, self.database.through(self.database.shop_url, proxy.port)
            else:
                url = self.broker.through(proxy.port)
                yield None if isinstance(url, NotVisible) else (proxy, url)
