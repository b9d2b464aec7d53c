"""``python -m bench debezium``: Debezium's connector, as it comes and tuned, and the relay, on the same rows.

All three are measured at the topic: records between the first one's arrival and the last one's, by the brokers' clocks.
So what each takes to start is left out, and so is the relay's last settlement.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, get_args

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from sqlalchemy import Connection, create_engine, delete

from bench import machine
from bench.connect import VERSIONS, Connect, connect_worker
from bench.connector import Tuning, configuration
from bench.fill import event_rows, fill, payload_of, write
from bench.job import Job
from bench.passage import WARM_UP_TYPE, Passage, ends, passage
from bench.places import TOPIC_PARTITIONS, Settings, fresh_database, installed, server_of, tell
from bench.worker import measure
from pillarbox.store.schema import outbox_event
from tests import servers

RELAY: Final = "relay"
SIDES: Final = (*get_args(Tuning), RELAY)
PATIENCE = 300.0  # seconds for one side's events to arrive
FIRST = 60.0  # seconds for a connector's first event
WARM_UP: Final = 20_000


@dataclass(frozen=True, slots=True)
class Task:
    """What is compared, and how often."""

    events: int
    rounds: int
    batch: int
    payload_bytes: int


def add_parser(commands: Any) -> None:
    """``python -m bench debezium``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "debezium", help="the relay beside Debezium, on the same rows"
    )
    parser.add_argument("--database", choices=("mysql",), default="mysql")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=2000, help="of the relay")
    parser.add_argument("--payload", type=int, default=300, metavar="BYTES")
    parser.set_defaults(run=run, table=table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """An unmeasured round, since a cold JVM is slow, and then the others."""
    task = Task(options.events, options.rounds, options.batch, options.payload)
    kafka, mysql = server_of("kafka"), server_of("mysql")
    bootstrap: Settings = {"bootstrap.servers": servers.bootstrap_of(kafka.url), "log_level": 0}
    found: dict[str, list[Passage]] = {side: [] for side in SIDES}
    with cluster(bootstrap) as connect:
        lab = Lab(connect, bootstrap, kafka.url)
        tell("warm-up")
        lab.round(Task(min(task.events, WARM_UP), 1, task.batch, task.payload_bytes), SIDES)
        for number in range(task.rounds):
            turn = number % len(SIDES)
            for side, one in lab.round(task, SIDES[turn:] + SIDES[:turn]).items():
                found[side].append(one)
                tell(f"round {number + 1}, {side}: {one.rate:,.0f} events/s")
    return summarise(task, found, {"mysql": mysql.version, "kafka": kafka.version, **VERSIONS})


@contextmanager
def cluster(bootstrap: Settings) -> Iterator[Connect]:
    """A worker, whose own topics go with it."""
    admin, name = AdminClient(bootstrap), servers.unique("connect")
    try:
        with connect_worker(str(bootstrap["bootstrap.servers"]), name) as connect:
            yield connect
    finally:
        left = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(name)]
        for future in admin.delete_topics(left, operation_timeout=20).values() if left else ():
            future.result(30)


class Lab:
    """One round after the other, each with a database and topics of its own."""

    def __init__(self, connect: Connect, bootstrap: Settings, kafka: str) -> None:
        self._connect = connect
        self._bootstrap = bootstrap
        self._kafka = kafka
        self._admin = AdminClient(bootstrap)
        self._made = 0

    def round(self, task: Task, order: tuple[str, ...]) -> dict[str, Passage]:
        """The sides one after the other, in this order, on one set of rows."""
        with fresh_database("mysql") as url, ExitStack() as stack:
            installed(url)
            topics = {side: stack.enter_context(self._topic()) for side in SIDES}
            names = stack.enter_context(self._connectors(url, topics))
            with opened(url) as connection:
                fill(connection, task.events, topics[RELAY], task.payload_bytes)
            return {side: self._measured(side, topics[side], names.get(side), url, task) for side in order}

    def _measured(self, side: str, topic: str, name: str | None, url: str, task: Task) -> Passage:
        beginning = self._ends(topic)
        if name is None:
            job = Job("product", "partition", url, self._kafka, topic, task.batch)
            measure(job)
        else:
            self._connect.resume(name)
            self._await(topic, sum(beginning) + task.events, PATIENCE, lambda: self._connect.check(name))
            self._until_quiet([topic])
            self._connect.stop(name)
        found = passage(self._bootstrap, topic, beginning)
        if (found.records, found.events) != (task.events, task.events):
            raise RuntimeError(f"{side}: {task.events} events became {found.records} records of {found.events} events")
        return found

    @contextmanager
    def _topic(self) -> Iterator[str]:
        stamped = {"message.timestamp.type": "LogAppendTime"}
        topic = servers.create_topic(self._admin, TOPIC_PARTITIONS, 3, stamped)
        try:
            yield topic
        finally:
            self._admin.delete_topics([topic], operation_timeout=20)[topic].result(30)

    @contextmanager
    def _connectors(self, url: str, topics: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Stopped, and warm. They have to know their place in the binary log before the rows are written."""
        names: dict[str, str] = {}
        try:
            for tuning in get_args(Tuning):
                self._made += 1
                name = names[tuning] = f"{self._connect.internal}-{self._made}"
                server_id = 100_000 + os.getpid() * 10 + self._made  # of a replica, as MySQL sees it
                bootstrap = str(self._bootstrap["bootstrap.servers"])
                self._connect.put(name, configuration(url, bootstrap, topics[tuning], name, server_id, tuning))
            with opened(url) as connection:
                self._until_first(connection, {topics[tuning]: name for tuning, name in names.items()})
                connection.execute(delete(outbox_event))
                connection.commit()
            for name in names.values():
                self._connect.stop(name)
            yield names
        finally:
            for name in names.values():
                self._connect.stop(name)
                self._connect.delete(name)

    def _until_first(self, connection: Connection, names: Mapping[str, str]) -> None:
        """A task that runs may not have reached the end of the binary log yet: then it does not send the first rows."""
        deadline = time.monotonic() + FIRST
        before, number = {topic: self._count(topic) for topic in names}, 0
        while any(self._count(topic) == count for topic, count in before.items()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{number} rows were written in {FIRST:g} s, and not every connector has sent one")
            number += 1
            (row,) = event_rows(range(number, number + 1), "any", payload_of(300), 1)
            write(connection, outbox_event, [row | {"event_type": WARM_UP_TYPE}])
            connection.commit()
            for name in names.values():
                self._connect.check(name)
            time.sleep(0.5)
        self._until_quiet(names)

    def _until_quiet(self, topics: Iterable[str]) -> None:
        """Until nothing has come for two seconds."""
        seen: list[int] = []
        while (now := [self._count(topic) for topic in topics]) != seen:
            seen = now
            time.sleep(2.0)

    def _await(self, topic: str, expected: int, seconds: float, check: Callable[[], None]) -> None:
        deadline = time.monotonic() + seconds
        while self._count(topic) < expected:
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._count(topic)} of {expected} records after {seconds:g} s")
            time.sleep(0.2)

    def _count(self, topic: str) -> int:
        return sum(self._ends(topic))

    def _ends(self, topic: str) -> list[int]:
        consumer = Consumer({**self._bootstrap, "group.id": "bench"})
        try:
            return ends(consumer, topic)
        finally:
            consumer.close()


@contextmanager
def opened(url: str) -> Iterator[Connection]:
    """A connection of its own."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def summarise(task: Task, found: dict[str, list[Passage]], versions: dict[str, str]) -> dict[str, Any]:
    """``ratio``: the relay's median rate over each configuration's of Debezium. Pure but for the machine's facts."""
    rates = {side: [round(one.rate) for one in passages] for side, passages in found.items()}
    middle = {side: round(median(ones)) for side, ones in rates.items()}
    return {
        "bench": "debezium",
        "database": "mysql",
        "broker": "kafka",
        "versions": versions,
        "events": task.events,
        "batch": task.batch,
        "payload_bytes": task.payload_bytes,
        "rounds": task.rounds,
        "events_per_second": middle,
        "rates": rates,
        "ratio": {tuning: round(middle[RELAY] / middle[tuning], 3) for tuning in get_args(Tuning)},
        "machine": machine.facts(),
    }


def table(summary: dict[str, Any]) -> str:
    """For people."""
    lines = [f"mysql -> kafka, {summary['events']:,} events, records per second at the topic"]
    lines += [f"{side:8} {rate:>9,}" for side, rate in summary["events_per_second"].items()]
    return "\n".join([*lines, *(f"relay : {side} {ratio:.2f}" for side, ratio in summary["ratio"].items())])
