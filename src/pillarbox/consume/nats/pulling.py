"""Asking one consumer at the server for messages, as many as there is room for. Runs on the event loop's thread.

The client's own ``fetch`` asks twice for each batch and leaves requests behind that take messages nobody waits for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

from nats.aio.msg import Msg

from ...errors import BrokerUnavailable
from ...publish.nats.connection import Connection

EXPIRES_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 5.0
"""While there is nothing to deliver, the server says so often that the request still stands."""

SILENCE_SECONDS: Final = 2.5 * HEARTBEAT_SECONDS
PREFETCH_BYTES: Final = 16 * 1024 * 1024
"""Of one request, and of what a member holds; a single message that is larger comes all the same."""

PAUSE_SECONDS: Final = 0.1
"""Before a request that follows one the server would not serve, or for less than half of the room."""

_HEARTBEAT, _NOT_FOUND, _TIMEOUT, _CONFLICT, _NOBODY = "100", "404", "408", "409", "503"


class Puller:
    """Has at most one request open. ``room`` tells how many messages may come, ``deliver`` takes each."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        durable: str,
        *,
        most: int,
        room: Callable[[], int],
        deliver: Callable[[Msg], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._where = f"{durable!r} of the stream {stream!r}"
        self._ask = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._inbox = connection.new_inbox()
        self._most = most
        self._room = room
        self._deliver = deliver
        self._left = 0  # of the open request
        self._heard = 0.0
        self._refused: str | None = None
        self._bytes = PREFETCH_BYTES
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Pull until cancelled; BrokerUnavailable when the consumer is gone."""
        subscription = await self._connection.subscribe(self._inbox, cb=self._on_message)
        try:
            while True:
                await self._one_request()
        finally:
            # With what is on its way still delivered: dropped, it would wait for its ack_wait.
            if not self._connection.ended.is_set():
                await subscription.drain()  # type: ignore[no-untyped-call]

    def look(self) -> None:
        """There may be room now."""
        self._changed.set()

    async def _one_request(self) -> None:
        wanted = await self._wait_for_room()
        loop = asyncio.get_running_loop()
        self._left, self._heard, self._refused = wanted, loop.time(), None
        question = {
            "batch": wanted,
            "max_bytes": self._bytes,
            "expires": int(EXPIRES_SECONDS * 1e9),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
        }
        await self._connection.publish(self._ask, json.dumps(question).encode(), reply=self._inbox)
        while self._left > 0 and self._refused is None and loop.time() - self._heard < SILENCE_SECONDS:
            await self._change(HEARTBEAT_SECONDS)
        if self._refused is not None:
            await self._after(self._refused, nothing=self._left == wanted)

    async def _after(self, status: str, *, nothing: bool) -> None:
        large = "maxbytes" in status.lower()
        self._bytes = self._bytes * 2 if large and nothing else PREFETCH_BYTES
        if large:
            return
        if "deleted" in status.lower() or status.startswith(_NOBODY):
            raise BrokerUnavailable(f"The consumer {self._where} is gone: {status}.")
        if not status.startswith((_TIMEOUT, _NOT_FOUND)):
            await asyncio.sleep(PAUSE_SECONDS)

    async def _wait_for_room(self) -> int:
        while (room := self._room()) * 2 < self._most:
            await self._change(PAUSE_SECONDS if room > 0 else HEARTBEAT_SECONDS)
            if 0 < room == self._room():
                return room  # little, and it does not grow
        return room

    async def _change(self, seconds: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _on_message(self, message: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        status = (message.headers or {}).get("Status")
        if status is None or message.reply.startswith("$JS.ACK."):
            self._left -= 1
            await self._deliver(message)
        elif status != _HEARTBEAT:
            self._refused = f"{status} {(message.headers or {}).get('Description', '')}".strip()
        if self._left <= 0 or self._refused is not None:
            self._changed.set()
