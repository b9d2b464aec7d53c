"""The connection that delivers and acknowledges, and what is set up again after each loss. On the loop's thread."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from nats.aio.msg import Msg

from ...errors import BrokerUnavailable, PillarboxError
from ...event.message import KEY
from ...ports import Incoming
from ...publish.nats.connection import FAILURES, Connection, connect, reason_of
from ...publish.nats.headers import read
from ...publish.nats.url import NatsUrl
from ..plan import OUTAGE_RETRY
from ..retries import read_retry_headers, without_retry_headers
from .durables import Durable, Server
from .holding import Delivery, Holding
from .names import RETRY_STREAM
from .pulling import PREFETCH_BYTES, Puller

_log = logging.getLogger("pillarbox.consume.nats")

_FAILURES = (*FAILURES, PillarboxError)
_SOON: Final = 0.005
"""Seconds. A retry that is due so soon is not sent back to wait."""

_NOTICE_SECONDS: Final = 0.03
_NAK, _PROGRESS = b"-NAK", b"+WPI"


class Subscription:
    """Pulls from the streams of the sources, passes messages on, and keeps them ours.

    ``deliver`` is called with each message. ``wanted`` is what a consumer at the server is to be like where there is
    none of this name yet.
    """

    def __init__(
        self,
        url: NatsUrl,
        consumer: str,
        sources: Sequence[str],
        *,
        prefetch: int,
        seconds: float,
        wanted: Mapping[str, Any],
        holding: Holding,
        deliver: Callable[[Incoming], None],
    ) -> None:
        self.connection: Connection | None = None
        self._url = url
        self._consumer = consumer
        self._sources = tuple(sources)
        self._prefetch = prefetch
        self._seconds = seconds
        self._wanted = dict(wanted)
        self._holding = holding
        self._deliver = deliver
        self._durables: list[Durable] = []
        self._pullers: list[Puller] = []
        self._attempt = 0
        self._closing = False
        self._serving: asyncio.Task[None] | None = None

    async def serve(self, opened: Future[None]) -> None:
        """Stay subscribed until cancelled. ``opened`` tells how the first attempt went, the only one that may fail."""
        self._serving = asyncio.current_task()
        try:
            await self._set_up()
        except _FAILURES as error:
            await self._leave()
            opened.set_exception(self._explained(error))
            return
        opened.set_result(None)
        failures = 0
        try:
            while True:
                try:
                    if self.connection is None:
                        await self._set_up()
                    failures = 0
                    await self._deliver_until_lost()
                except _FAILURES as error:
                    _log.warning("consumer %s: %s", self._consumer, self._explained(error))
                await self._leave()
                failures += 1
                await asyncio.sleep(OUTAGE_RETRY.delay(failures, random.random()))
        finally:
            self._closing = True
            await self._give_back()

    async def close(self) -> None:
        """End :meth:`serve`: give back what is not finished, and say goodbye."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    def look(self) -> None:
        """There may be room for more messages."""
        for puller in self._pullers:
            puller.look()

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Tell the server that these are finished, and wait until it has read that; BrokerUnavailable when it has not.

        Also of one that was given to somebody else meanwhile: its effect is committed.
        """
        for delivery in deliveries:
            self._holding.release(delivery)
        self.look()
        connection = self.connection
        if connection is None or connection.ended.is_set():
            raise BrokerUnavailable("The connection to NATS was lost before the acknowledgement.")
        try:
            async with asyncio.timeout(self._seconds):
                for delivery in deliveries:
                    await connection.publish(delivery.reply)
                await connection.flush()
        except FAILURES as error:
            raise BrokerUnavailable(f"The acknowledgement did not reach NATS: {reason_of(error)}.") from error

    # Setting up -------------------------------------------------------------------------------------------------------

    async def _set_up(self) -> None:
        connection = await connect(
            self._url, f"pillarbox consumer {self._consumer}", first=self._attempt, seconds=self._seconds
        )
        self._attempt += 1
        try:
            self._durables = await self._find_durables(Server(connection, self._url, self._seconds))
        except BaseException:
            await connection.farewell()
            raise
        self.connection = connection

    async def _find_durables(self, server: Server) -> list[Durable]:
        streams = {source: await server.stream_of(source) for source in self._sources}
        await server.side_streams(max([await server.replicas_of(stream) for stream in set(streams.values())]))
        # A message that waits there for its time is pending; they must not use up what may be.
        retry = {**self._wanted, "max_ack_pending": -1, "deliver_policy": "all"}
        found = [await server.durable(at, self._consumer, source, self._wanted) for source, at in streams.items()]
        return found + [await server.durable(RETRY_STREAM, self._consumer, source, retry) for source in streams]

    async def _deliver_until_lost(self) -> None:
        connection = self.connection
        assert connection is not None
        self._pullers = [self._puller(connection, durable) for durable in self._durables]
        works: list[asyncio.Task[None]] = [asyncio.ensure_future(puller.run()) for puller in self._pullers]
        works.append(asyncio.ensure_future(self._keep(connection)))
        lost: asyncio.Task[bool] = asyncio.ensure_future(connection.ended.wait())
        try:
            await asyncio.wait([*works, lost], return_when=asyncio.FIRST_COMPLETED)
            for work in works:
                if work.done():
                    work.result()
            raise BrokerUnavailable(
                f"NATS at {self._url.shown}: the connection was lost: {reason_of(connection.failure or OSError())}."
            )
        finally:
            self._pullers = []
            for task in (*works, lost):
                task.cancel()
            # A puller lets what is on its way arrive first.
            await asyncio.wait([*works, lost], timeout=2.0)

    def _puller(self, connection: Connection, durable: Durable) -> Puller:
        async def deliver(message: Msg) -> None:
            await self._on_message(connection, durable, message)

        share = max(1, self._prefetch // len(self._sources))

        def room() -> int:
            if self._closing or self._holding.size >= PREFETCH_BYTES:
                return 0
            return max(0, share - self._holding.count(durable.stream, durable.name))

        return Puller(connection, durable.stream, durable.name, most=share, room=room, deliver=deliver)

    # Messages ---------------------------------------------------------------------------------------------------------

    async def _on_message(self, connection: Connection, durable: Durable, message: Msg) -> None:
        headers = read(message.headers)
        facts = message.metadata
        delivery = Delivery(durable.stream, durable.name, facts.sequence.stream, message.reply)
        attempts = 0
        if durable.retries:
            waited = read_retry_headers(headers)
            left = waited.due - time.time()
            if left > _SOON:
                await connection.publish(message.reply, _NAK + b" " + json.dumps({"delay": int(left * 1e9)}).encode())
                return
            headers, attempts = without_retry_headers(headers), waited.attempts
            delivery = delivery._replace(before=waited.position)
        self._holding.take(delivery, durable.ack_wait, len(message.data))
        redelivered = facts.num_delivered > 1 and not durable.retries
        key = headers.get(KEY)
        self._deliver(Incoming(durable.source, headers, message.data, key, delivery, redelivered, attempts))

    async def _keep(self, connection: Connection) -> None:
        """Tell the server of all that is held, three times within the time that it waits."""
        wait = min(durable.ack_wait for durable in self._durables)
        while True:  # at once after a reconnect, which took some of the time
            if held := self._holding.all():
                since = time.monotonic()
                async with asyncio.timeout(wait / 3):
                    for delivery in held:
                        await connection.publish(delivery.reply, _PROGRESS)
                    await connection.flush()  # its answer comes after the server has read what was before it
                self._holding.extend(held, since)
            await asyncio.sleep(wait / 3)

    # Leaving ----------------------------------------------------------------------------------------------------------

    async def _give_back(self) -> None:
        """What is not finished goes to others at once, in order, and not only when the server has waited for it."""
        connection = self.connection
        held = self._holding.all()
        if connection is not None and not connection.ended.is_set() and held:
            try:
                async with asyncio.timeout(1.0):
                    # The server still knows the requests that nobody listens to any more. It notices with the first
                    # message that comes back, and puts that one behind those that have come back by then.
                    firsts = {(one.stream, one.durable): one for one in reversed(held)}.values()
                    await self._refuse(connection, firsts)
                    await asyncio.sleep(_NOTICE_SECONDS)
                    await self._refuse(connection, [one for one in held if one not in firsts])
            except FAILURES as error:
                _log.warning(
                    "consumer %s: %d messages come again when NATS has waited for them: %s",
                    self._consumer,
                    len(held),
                    reason_of(error),
                )
        for delivery in held:
            self._holding.release(delivery)
        await self._leave()

    async def _refuse(self, connection: Connection, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            await connection.publish(delivery.reply, _NAK)
        await connection.flush()

    async def _leave(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.farewell()

    def _explained(self, error: Exception) -> PillarboxError:
        if isinstance(error, PillarboxError):
            return error
        return BrokerUnavailable(f"NATS at {self._url.shown}: {reason_of(error)}.")
