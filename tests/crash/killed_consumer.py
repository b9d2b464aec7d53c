"""The process that the consumer's crash tests kill: it writes a row for each event, and dies at a named fault point."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

EVENTS: Final = 60
POINTS: Final = ["consumer.received", "consumer.after-handler", "consumer.after-commit", "consumer.after-ack"]
MODES: Final = ["workers=1", "workers=3", "batch=10", "batch=5, workers=2"]

_SCRIPT = """
    import os, signal, sys
    from sqlalchemy import text
    from sqlalchemy.orm import Session
    from sqlalchemy.ext.asyncio import AsyncSession
    from pillarbox import Consumer, Received, faultpoints

    point, times = sys.argv[1], int(sys.argv[2])
    passages = 0

    def kill(name):
        global passages
        passages += name == point
        if passages == times:
            os.kill(os.getpid(), signal.SIGKILL)

    faultpoints.attach(kill)
    consumer = Consumer(
        {name!r}, database={database!r}, broker={broker!r}, sources=[{source!r}], {mode}, ahead=20, options={options!r}
    )
    insert = text("INSERT INTO conformance_effect (event_id, note) VALUES (:id, '')")

    if consumer.asynchronous:
        @consumer.on("thing.happened")
        async def reserve(event: Received, session: AsyncSession) -> None:
            await session.execute(insert, {{"id": event.id}})
    else:
        @consumer.on("thing.happened")
        def handle(event: Received, session: Session) -> None:
            session.execute(insert, {{"id": event.id}})

    left = int(sys.argv[3])
    if left < 0:
        consumer.run()
    else:
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.applied + consumer.stats.duplicates >= left, 60)
    print(consumer.stats.duplicates)
"""


@dataclass(frozen=True)
class Program:
    """The consumer as a program in a folder. ``mode`` are arguments of Consumer, ``options`` those of its source."""

    folder: Path
    database: str
    broker: str
    source: str
    mode: str
    name: str = "stock"
    options: Mapping[str, Any] = field(default_factory=dict)

    def killed_at(self, point: str) -> None:
        """Run it until it dies there, early enough that much is left to do."""
        times = {"consumer.received": 33, "consumer.after-ack": 1}.get(point, 3)
        with self._started(point, times) as victim:
            assert victim.wait(60) == -9, "it never came there"

    def followed(self, left: int | None) -> subprocess.Popen[str]:
        """The next one of its name; it ends after ``left`` messages, or else by SIGTERM."""
        return self._started("nowhere", 1, -1 if left is None else left)

    def _started(self, point: str, times: int, left: int = -1) -> subprocess.Popen[str]:
        script = _SCRIPT.format(
            name=self.name,
            database=self.database,
            broker=self.broker,
            source=self.source,
            mode=self.mode,
            options=dict(self.options),
        )
        (self.folder / "stock.py").write_text(textwrap.dedent(script))
        command = [sys.executable, "stock.py", point, str(times), str(left)]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)


def duplicates_of(follower: subprocess.Popen[str]) -> int:
    """How many it met, once it has ended."""
    said, _ = follower.communicate(timeout=90)
    assert follower.returncode == 0
    return int(said)
