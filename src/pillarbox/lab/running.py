"""A whole run: the matrix of what is asked for, its cells side by side, and what was done when it is ended early."""

from __future__ import annotations

import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from ..masking import mask_whole_url
from ..wiring import dialect_name
from .cell import Seen, run_cell
from .consumers import WAYS
from .grounds import refuse_foreign, remove_leftovers
from .model import CellKey, CellResult, NotRun, Plan, Planned, Run, RunFacts
from .options import LabOptions
from .processes import Crew
from .stage import BrokerLink, Cancelled, Link
from .strategies import STRATEGIES
from .versions import versions
from .windows import WINDOWS

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_CLIENTS: Final = {"kafka": "confluent_kafka", "rabbitmq": "pika"}
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: ``done`` of ``total`` cells that run, and those at work now."""

    done: int
    total: int
    working: tuple[CellKey, ...]


Show = Callable[[CellResult | Progress], None]


def run_lab(options: LabOptions, show: Show = lambda _: None) -> Run:
    """Run what ``options`` ask for; ``show`` is told of each cell as it ends, and of progress, from this thread.

    Ctrl-C and SIGTERM (in the main thread) end it early: cells at work are left, their names on the servers removed,
    and what was finished is in the Run, whose ``complete`` is False then.

    Raises LabError (PB-100) where names on the servers stand in the way, and what is wrong with either URL.
    """
    started, cancelled = time.time(), threading.Event()
    refuse_foreign(options.database, options.broker)
    remove_leftovers(options.database, options.broker)
    plans = matrix(options)
    found: dict[CellKey, CellResult] = {}
    seen: Seen | None = None
    for key, plan in plans.items():
        if not isinstance(plan, Planned):
            found[key] = CellResult(key, plan, command=command_of(options, key) if isinstance(plan, NotRun) else "")
            show(found[key])
    with _ended_by_signals(cancelled), Crew(_preloaded(options)) as crew:
        for result, sight in _cells(options, plans, crew, cancelled, show):
            found[result.key] = result
            seen = seen or sight
            show(result)
    facts = RunFacts(
        started=started,
        seed=options.seed,
        rounds=options.rounds,
        versions=versions(),
        servers=seen.servers if seen else {},
        clock_offsets=seen.clock_offsets if seen else {},
        command=command_of(options),
    )
    return Run(facts, tuple(found[key] for key in plans if key in found), complete=not cancelled.is_set())


def matrix(options: LabOptions) -> dict[CellKey, Plan]:
    """Every cell that is asked for, with its plan on these servers, in the order of the matrix."""
    database = "sqlite" if options.database is None else dialect_name(options.database)
    broker = broker_name(options.broker)
    found: dict[CellKey, Plan] = {}
    for one in WINDOWS:
        for column in STRATEGIES if one.side == "sending" else WAYS:
            if options.wants(one.id, column.id):
                found[CellKey(one.id, column.id)] = column.plan(one.id, database, broker)
    return found


def broker_name(url: str | None) -> str:
    """kafka, rabbitmq or embedded."""
    scheme = "embedded" if url is None else url.partition(":")[0].lower()
    return {"amqp": "rabbitmq", "amqps": "rabbitmq"}.get(scheme, scheme)


def command_of(options: LabOptions, key: CellKey | None = None) -> str:
    """The command that runs this cell again (or the run), passwords masked."""
    windows, strategies = ((key.window,), (key.strategy,)) if key else (options.windows, options.strategies)
    words = ["pillarbox", "lab", "run"]
    for name, values in (("--window", windows), ("--strategy", strategies)):
        for value in values:
            words += [name, value]
    for name, url in (
        ("--database", options.database),
        ("--broker", options.broker),
        ("--kafka-via", options.kafka_via),
    ):
        if url is not None:
            words += [name, mask_whole_url(url)]  # before it is quoted: a password may have a space
    return shlex.join([*words, "--rounds", str(options.rounds), "--seed", str(options.seed)])


def _cells(
    options: LabOptions, plans: dict[CellKey, Plan], crew: Crew, cancelled: threading.Event, show: Show
) -> Iterator[tuple[CellResult, Seen | None]]:
    """The cells' results as they come."""
    link = _kafka_link(options)
    todo = [(key, plan) for key, plan in plans.items() if isinstance(plan, Planned)]
    working: dict[Future[tuple[CellResult, Seen | None]], CellKey] = {}
    done, total = 0, len(todo)
    with ThreadPoolExecutor(options.parallel, thread_name_prefix="lab-cell") as pool:
        while working or (todo and not cancelled.is_set()):
            while todo and len(working) < options.parallel and not cancelled.is_set():
                key, plan = todo.pop(0)
                command = command_of(options, key)
                working[pool.submit(run_cell, options, key, plan, crew, cancelled, command, link)] = key
            show(Progress(done, total, tuple(working.values())))
            # In pieces: a signal is taken between two of them.
            ended, _ = wait(working, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in ended:
                del working[future]
                done += 1
                try:
                    yield future.result()
                except Cancelled:
                    continue
        show(Progress(done, total, ()))


def _kafka_link(options: LabOptions) -> BrokerLink | None:
    """Where the run knows a way between clients and brokers. One cell has it at a time: the ports are fixed."""
    if options.kafka_via is None or broker_name(options.broker) != "kafka":
        return None
    from .kafka.via import kafka_via

    via, alone = options.kafka_via, threading.Lock()

    @contextmanager
    def opened() -> Iterator[tuple[Link, str]]:
        with alone, kafka_via(via) as link:
            yield link, link.url

    make: Callable[[], AbstractContextManager[tuple[Link, str]]] = opened
    return make


def _preloaded(options: LabOptions) -> list[str]:
    """What the processes import before they are forked."""
    found = ["sqlite3"]
    broker = broker_name(options.broker)
    module = "embedded" if broker == "embedded" else broker
    for package in ("senders", "consumers.readers"):
        found.append(f"pillarbox.lab.{package}.{module}")
    found += [f"pillarbox.consume.{module}", f"pillarbox.publish.{module}"]
    if broker in _CLIENTS:
        found.append(_CLIENTS[broker])
    if options.database is not None:
        found.append(_DRIVERS.get(dialect_name(options.database), "sqlite3"))
    return found


@contextmanager
def _ended_by_signals(cancelled: threading.Event) -> Iterator[None]:
    """In the main thread: signals end the run in good order; a second one has to wait for that, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, lambda *_: cancelled.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
