"""The conformance classes against async handlers: the same tests, each handler behind an ``async def``."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from pillarbox import Consumer
from pillarbox.testing.conformance.consumer_world import QUICK_RETRY, ConsumerWorld

H = TypeVar("H", bound=Callable[..., object])


class AsyncFaced(Consumer):
    """Takes the suite's synchronous handlers, and gives the consumer async ones that run them by ``run_sync``."""

    def on(self, event_type: type | str) -> Callable[[H], H]:
        return self._wrapping(super().on(event_type))

    def on_batch(self, event_type: type | str) -> Callable[[H], H]:
        return self._wrapping(super().on_batch(event_type))

    def _wrapping(self, register: Callable[[Any], Any]) -> Callable[[H], H]:
        def wrap(function: H) -> H:
            register(async_face_of(function))
            return function

        return wrap


def async_face_of(function: Callable[..., object]) -> Callable[..., object]:
    hints = get_type_hints(function)
    names = list(inspect.signature(function).parameters)
    (what,) = [name for name in names if hints[name] not in (Session, Connection)]

    async def wrapped(event: Any, session: AsyncSession) -> None:
        def run(sync: Session) -> None:
            given = {Session: lambda: sync, Connection: sync.connection}
            function(**{name: event if name == what else given[hints[name]]() for name in names})

        await session.run_sync(run)

    wrapped.__annotations__ = {"event": hints[what], "session": AsyncSession}
    wrapped.__qualname__ = function.__qualname__
    return wrapped


@dataclass(slots=True)
class AsyncWorld(ConsumerWorld):
    """Reads through the synchronous engine; the consumers have the asynchronous one."""

    engine: AsyncEngine

    def consumer(self, name: str | None = None, **changes: Any) -> Consumer:
        arguments: dict[str, Any] = {
            "database": self.engine,
            "broker": self.under_test.broker,
            "sources": [self.source],
            "retry": QUICK_RETRY,
        }
        return AsyncFaced(name or f"c-{uuid4().hex[:12]}", **(arguments | changes))
