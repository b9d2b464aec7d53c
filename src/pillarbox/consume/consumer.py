"""The consumer as a user writes it."""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ..clock import Clock, SystemClock
from ..errors import BadConsumer, BadHandler
from ..event.limits import check_name
from ..policy.retry import RetryPolicy
from .assembly import assemble
from .choices import Choices
from .engine import consumer_async_engine, consumer_engine, is_async_url
from .handlers import make_handler
from .plan import DEFAULT_RETRY
from .registrations import Registrations
from .running import Running
from .sides import Side, make_side
from .signals import draining_signals
from .signature import Kind
from .sources import Broker, check_scheme, make_source, may_reach
from .stats import ConsumerStats
from .stopping import PauseFlag, StopFlag
from .verdicts import NO_CLASSES, Policy, RetryIn, Verdict

H = TypeVar("H", bound=Callable[..., object])

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")


class Consumer:
    """Applies each event of its sources once to its database, however often the broker delivers it.

    ``name`` is the consumer's identity (1 to 100 of ``A-Z a-z 0-9 . _ -``): the inbox, the consumer group and the
    dead-letter destinations carry it. A consumer under a new name applies every event again.

    ``database`` is an engine, an AsyncEngine or a URL, with the inbox table in it (``pillarbox init --part
    inbox``). ``broker`` is a URL (``kafka://``, ``amqp://``, ``amqps://``, ``embedded:///path``) or a :class:`Broker`.
    ``sources`` are topics or queues. Nothing is connected, and no broker client imported, before it runs.

    ``retry`` says how often a failing handler is tried before the event is set aside in ``<source>.<name>.dead``. While
    it waits, the events of the same source and key wait, so that their order is kept; the others go on. ``on_error``
    maps exception classes to ``"retry"``, ``"give up"`` (set aside at once) or ``"drop"``; the most specific counts.

    ``retry_in="broker"`` lets a failed event wait in a retry topic or queue of this consumer instead: its key goes on,
    and it is applied after events that came behind it.

    ``foreign`` says what becomes of messages that are no events (no id, no type, another content type, no JSON):
    ``"set aside"``, ``"skip"`` or ``"raise"``; ``unknown`` the same of events without handler, ``newer`` of
    those whose schema version is higher than that of the handler's class.

    ``handler_timeout`` (seconds) bounds a handler: it is reported with its stack, interrupted, and counts as failed.

    ``workers`` is how many handlers run at the same time, each in a thread and with a connection of its own; events of
    one key still one after the other. ``batch`` is the most events that share a transaction. ``ahead`` and
    ``ahead_bytes`` bound the messages that are fetched and not finished. ``drain`` is the time in seconds that a stop
    may take. ``options`` are the broker source's own keyword arguments.

    >>> from pillarbox.consume import Consumer, Received
    >>> consumer = Consumer("stock", database="sqlite://", broker="embedded:///tmp/log.db", sources=["orders"])
    >>> @consumer.on("order.created")
    ... def reserve(event: Received) -> None:
    ...     print(event.payload)
    """

    def __init__(
        self,
        name: str,
        *,
        database: Engine | AsyncEngine | str,
        broker: str | Broker,
        sources: Sequence[str],
        retry: RetryPolicy = DEFAULT_RETRY,
        drain: float = 10.0,
        workers: int = 1,
        batch: int = 1,
        ahead: int = 100,
        ahead_bytes: int = 64 * 1024 * 1024,
        on_error: Mapping[type[Exception], Verdict] = NO_CLASSES,
        foreign: Policy = "set aside",
        unknown: Policy = "skip",
        newer: Policy = "set aside",
        handler_timeout: float | None = None,
        retry_in: RetryIn = "place",
        options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = _check_name(name)
        self.sources = _check_sources(sources)
        self.stats = ConsumerStats()
        if isinstance(broker, str):
            check_scheme(broker)
        self._choices = Choices(
            retry=retry,
            retry_in=retry_in,
            on_error=on_error,
            foreign=foreign,
            unknown=unknown,
            newer=newer,
            workers=workers,
            batch=batch,
            ahead=ahead,
            ahead_bytes=ahead_bytes,
            handler_timeout=handler_timeout,
            drain=drain,
        )
        self._database = database
        self._broker = broker
        self._options = dict(options or {})
        self._clock = clock or SystemClock()
        self._chance = chance
        self._registrations = Registrations()
        self._stop = StopFlag()
        self._pause = PauseFlag()
        self._busy = threading.Lock()

    def on(self, event_type: type | str) -> Callable[[H], H]:
        """Decorator: run the function for each event of this type, in the transaction that also marks it as applied.

        ``event_type`` is an ``@event_type`` class or a name. The function takes one ``Received[T]`` and, if it wants,
        one sync ``Session`` or ``Connection``, in any order and under any names; it is returned unchanged. Raises
        BadHandler (PB-040) at once for parameters that could not be filled later. Several functions of one type run in
        the order of registration, all in one transaction.
        """

        return self._register(event_type, sys._getframe(1).f_locals, many=False)

    def on_batch(self, event_type: type | str) -> Callable[[H], H]:
        """Decorator like :meth:`on` for a function that takes ``list[Received[T]]``: many events in one call.

        With ``batch=500`` it is called with up to 500 events of its type, in the order of their keys, all in one
        transaction. If that fails, it is called again for each event alone, so expect lists of one.
        """
        return self._register(event_type, sys._getframe(1).f_locals, many=True)

    def _register(self, event_type: type | str, local_names: Mapping[str, Any], *, many: bool) -> Callable[[H], H]:
        if not isinstance(event_type, type | str):  # `@consumer.on` without brackets would register nothing, unseen
            raise BadHandler(
                f"A handler is registered for {event_type!r}, which is neither an @event_type class nor a name.",
                fix=f"Write @consumer.{'on_batch' if many else 'on'}(EventType).",
            )
        kind = Kind(asynchronous=self.asynchronous, many=many)

        def register(function: H) -> H:
            # local_names: types that are defined in the same function as the handler
            self._registrations.add(make_handler(event_type, function, local_names, kind))
            return function

        return register

    @property
    def event_types(self) -> tuple[str, ...]:
        """The event types that have a handler."""
        return tuple(self._registrations)

    def run(self) -> None:
        """Consume until :meth:`stop`, SIGTERM or SIGINT (handled when this is the main thread), then drain and return.

        Draining finishes the events in progress and acknowledges them. A handler that is not done at the ``drain``
        deadline is interrupted and rolled back; its event comes again.

        Raises BadConsumer (PB-041), SourceMissing (PB-042), TablesMissing (PB-006), DatabaseUnavailable (PB-004),
        BrokerUnavailable (PB-005), AccessRefused (PB-008) or MissingDriver (PB-003) at the start; later outages are
        waited out.
        """
        with draining_signals(self.stop, self._choices.drain):
            self._run(lambda: None)

    def start(self, timeout: float = 30.0) -> Running:
        """Run in a thread; returns when the source is open, raises what :meth:`run` would raise until then.

        >>> # with consumer.start() as running:
        >>> #     running.wait_until(lambda: running.stats.applied == 3)
        """
        running = Running(self.name, self._run, self._stop, self.stats, self._choices.drain)
        running.begin(timeout)
        return running

    def stop(self) -> None:
        """Ask the consumer to drain. Safe from any thread and signal handler; before a run, that run ends at once."""
        self._stop.set()

    def pause(self) -> None:
        """Fetch nothing and begin nothing until :meth:`resume`; handlers in progress go on. Safe from any thread.

        The consumer stays in its group and keeps its partitions. Before a run, that run begins paused.
        """
        self._pause.set()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._pause.clear()

    @property
    def paused(self) -> bool:
        """True between :meth:`pause` and :meth:`resume`."""
        return self._pause.is_set()

    @property
    def asynchronous(self) -> bool:
        """True when the database is an AsyncEngine or the URL of an async driver: handlers are ``async def`` then."""
        if isinstance(self._database, str):
            return is_async_url(self._database)
        return isinstance(self._database, AsyncEngine)

    def open_side(self) -> Side:
        """The consumer's database, for one run; it is to be closed."""
        connections = self._choices.workers
        if not isinstance(self._database, str):
            return make_side(self._database, self._choices, self.name, own=False)
        make = consumer_async_engine if self.asynchronous else consumer_engine
        return make_side(make(self._database, connections=connections), self._choices, self.name, own=True)

    def reads(self, destination: str) -> bool:
        """False when events sent to ``destination`` surely do not reach this consumer's sources.

        On RabbitMQ the bindings decide, which only the broker knows.
        """
        return may_reach(self._broker, destination, self.sources)

    @property
    def registrations(self) -> Registrations:
        """The handlers, for tools that deliver without a broker."""
        return self._registrations

    def _run(self, ready: Callable[[], None]) -> None:
        if not len(self._registrations):
            raise BadConsumer(
                f"The consumer {self.name!r} has no handlers.", fix="Register one with @consumer.on(EventType)."
            )
        if not self._busy.acquire(blocking=False):
            raise BadConsumer(
                f"The consumer {self.name!r} runs already.", fix="Start a second process to consume faster."
            )
        try:
            self._consume(ready)
        finally:
            self._stop = StopFlag()  # a stop that comes too late is not meant for the next run
            self._busy.release()

    def _consume(self, ready: Callable[[], None]) -> None:
        source = make_source(self._broker, self.name, self.sources, self._options)
        with ExitStack() as cleanup:
            side = self.open_side()
            cleanup.callback(side.close)
            side.check()
            cleanup.callback(source.close)
            source.open()
            ready()
            assemble(
                self.name,
                self._choices,
                source=source,
                side=side,
                registrations=self._registrations,
                stats=self.stats,
                stop=self._stop,
                pause=self._pause,
                clock=self._clock,
                chance=self._chance,
            ).run()


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise BadConsumer(
            f"A consumer's name is 1 to 100 of A-Z a-z 0-9 . _ -, got {str(name)[:120]!r}.",
            fix="It becomes part of group, topic and queue names.",
        )
    return name


def _check_sources(sources: object) -> tuple[str, ...]:
    if isinstance(sources, str) or not isinstance(sources, Sequence):
        raise BadConsumer(f"sources is a list of topics or queues, got {sources!r}.", fix="Write sources=['orders'].")
    found = tuple(check_name("source", source) for source in sources)
    if not found:
        raise BadConsumer("The consumer has no sources.", fix="Name the topics or queues it reads.")
    if len(set(found)) != len(found):
        raise BadConsumer(f"A source is named twice: {list(found)}.", fix="Name each source once.")
    return found
