"""The loop that most services have: fetch, handle, acknowledge. Only the handler differs from way to way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from ..engines import plain_engine
from ..points import about, reach
from .desk import Desk, Letter
from .readers import open_reader

Handle = Callable[[Engine, str, str], None]
"""Applies one event: the consumers' database, the consumer's name, the event's id."""


def consume(desk: Desk, way: str, handle: Handle) -> None:
    """Handle, then acknowledge: whatever dies in between comes again. ``way`` begins the names of the points."""
    engine = plain_engine(desk.database, connections=desk.workers)
    reader = open_reader(desk, automatic=False)

    def work(letter: Letter) -> None:
        with about(letter.event_id):
            reach(f"{way}.received")
            handle(engine, desk.name, letter.event_id)
            reach(f"{way}.committed")

    with ThreadPoolExecutor(desk.workers) as pool:
        while desk.goes_on():
            letters = reader.poll(0.1, desk.limit)
            list(pool.map(work, letters))
            if letters:
                reader.acknowledge(letters)
                reach(f"{way}.acknowledged")
    reader.close()
    engine.dispose()
