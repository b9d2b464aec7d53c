"""Servers for a soak that may be killed while it runs: `python -m tests.soak_servers mysql-kafka --minutes 10 …`.

They are started for it, and it is given the commands that kill and start them again. The rest of the command line goes
to ``pillarbox lab soak``. The status is that command's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from tests.kafka_broker import KafkaBroker, kafka_broker
from tests.own_mysql import own_mysql
from tests.own_postgres import own_postgres
from tests.own_rabbitmq import own_rabbitmq
from tests.restarting import Commanded, commanded

LOST_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Pair:
    """A database and a broker of our own, and what may be done to them."""

    database: str
    broker: str
    commands: tuple[Commanded, ...]


@contextmanager
def postgres_rabbitmq() -> Iterator[Pair]:
    """Each ends as in a crash, and recovers."""
    with own_postgres() as database, own_rabbitmq() as broker:

        def restart_database() -> None:
            database.kill()
            database.start()

        def restart_broker() -> None:
            broker.parts()[broker.name].kill()
            broker.start()

        with _pair(database.url, broker.url, restart_database, restart_broker) as pair:
            yield pair


@contextmanager
def mysql_kafka() -> Iterator[Pair]:
    """The same; and at times Kafka's answers are lost, since a proxy of its own stands before this broker."""
    with own_mysql() as database, kafka_broker() as broker:

        def restart_database() -> None:
            database.kill()
            database.start()

        def restart_broker() -> None:
            broker.kill()
            broker.start()

        acts = (restart_database, restart_broker, lambda: _lose_answers(broker))
        with _pair(database.url, broker.url, *acts) as pair:
            yield pair


PAIRS: dict[str, Callable[[], AbstractContextManager[Pair]]] = {
    "postgres-rabbitmq": postgres_rabbitmq,
    "mysql-kafka": mysql_kafka,
}


def _lose_answers(broker: KafkaBroker) -> None:
    broker.proxy.lose_answers()
    time.sleep(LOST_SECONDS)
    broker.proxy.heal()


@contextmanager
def _pair(database: str, broker: str, *acts: Callable[[], None]) -> Iterator[Pair]:
    with ExitStack() as cleanup:
        yield Pair(database, broker, tuple(cleanup.enter_context(commanded(act)) for act in acts))


def main(arguments: list[str]) -> int:
    """Start the pair, and run the soak on it."""
    with PAIRS[arguments[0]]() as pair:
        command = [sys.executable, "-m", "pillarbox", "lab", "soak", *arguments[1:]]
        command += ["--database", pair.database, "--broker", pair.broker]
        for one in pair.commands:
            command += ["--disturb", one.command]
        status = subprocess.run(command, check=False).returncode
        for one in pair.commands:
            print(f"called {one.times} times, errors: {one.errors}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
