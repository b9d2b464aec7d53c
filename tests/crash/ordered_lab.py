"""A real database with an outbox, writers that lock their keys, and relay processes that may be frozen and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pillarbox.testing.conformance.store_world import event
from tests.acceptance.processes import Started, environment
from tests.property.worlds import SqlWorld

KEYS = ("k0", "k1", "k2", "k3", "k4", "k5")


class Owned(NamedTuple):
    """A row of outbox_partition."""

    number: int
    owner: str
    token: int


class Lab:
    """One database. ``destination`` is where all its events go."""

    def __init__(self, url: str, destination: str, folder: Path) -> None:
        self.url = url
        self.world = SqlWorld(url)
        self.destination = destination
        self.folder = folder

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a SELECT finds now."""
        with self.world.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(sql)]

    def execute(self, sql: str) -> None:
        """Change something by hand."""
        with self.world.engine.begin() as connection:
            connection.exec_driver_sql(sql)

    def one(self, sql: str) -> Any:
        """The one value that a SELECT finds."""
        ((value,),) = self.rows(sql)
        return value

    def add(self, *keys: str, payload: bytes = b"{}") -> None:
        """One event for each key, committed together under the keys' locks."""
        with self.world.writing() as writing:
            writing.lock(sorted({key for key in keys if key in KEYS}))
            writing.add([event(key=key, payload=payload, destination=self.destination) for key in keys], ())

    def partitions(self) -> list[Owned]:
        """Who owns what."""
        return [Owned(*row) for row in self.rows("SELECT partition_no, owner, token FROM outbox_partition ORDER BY 1")]

    def owned_by(self, name: str) -> int:
        """How many partitions."""
        return sum(one.owner == name for one in self.partitions())

    def sent(self) -> int:
        """How many receipts there are."""
        return int(self.one("SELECT COUNT(*) FROM outbox_receipt"))

    def waiting(self) -> int:
        """How many events are neither sent nor dead."""
        return int(
            self.one(
                "SELECT (SELECT COUNT(*) FROM outbox_ready)"
                " + (SELECT COUNT(*) FROM outbox_parked WHERE state NOT IN ('DEAD', 'BURIED'))"
            )
        )

    def close(self) -> None:
        """Let go of the database."""
        self.world.close()

    @contextmanager
    def relay(
        self, name: str, broker: str, *, lease: float, deadline: float, env: dict[str, str] | None = None
    ) -> Iterator[Started]:
        """``pillarbox relay`` as a process of its own, that ends with a report on its standard output."""
        command = [sys.executable, "-m", "pillarbox", "relay", "--database", self.url, "--broker", broker, "--json"]
        command += ["--relay-id", name, "--lease", str(lease), "--broker-deadline", str(deadline)]
        out, err = (self.folder / f"{name}-{time.monotonic_ns()}.{end}" for end in ("out", "err"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(command, cwd=self.folder, env=environment(env), stdout=out_file, stderr=err_file)
            try:
                yield Started(process, out, err)
            finally:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(10)

    @contextmanager
    def load(self, pause: float = 0.01) -> Iterator[Load]:
        """Write on a thread until the block ends."""
        load = Load(self, pause)
        try:
            yield load
        finally:
            load.stop()


class Load:
    """A writer that locks the aggregates of its events, as an application does."""

    def __init__(self, lab: Lab, pause: float) -> None:
        self.written = 0
        self.lost = 0
        self._lab = lab
        self._pause = pause
        self._random = Random(7)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The transaction under way is ended first."""
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            keys = self._random.choices(KEYS, k=self._random.randint(1, 4))
            try:
                self._lab.add(*keys, *(f"x{self._random.randrange(1000)}" for _ in range(2)))
            except Exception:  # noqa: BLE001 - the server was disturbed: committed or not, the tables will tell
                self.lost += 1
                continue
            self.written += len(keys) + 2


def wait_until(condition: Callable[[], object], seconds: float = 30.0, what: str = "it") -> float:
    """Look every 20 ms; returns how many seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what} did not happen in {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began
