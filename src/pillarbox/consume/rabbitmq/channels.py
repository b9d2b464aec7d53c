"""pika's callbacks as things to await, each with a deadline. Everything here runs on the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPError

ANSWER_SECONDS: Final = 10.0
"""How long a broker may take for one answer."""

FAREWELL_SECONDS: Final = 3.0
"""How long closing in order may take; a frozen broker never answers."""


class Connection:
    """An open connection. ``lost`` is done, with the reason, when it ended."""

    def __init__(self, raw: Any, lost: asyncio.Future[BaseException]) -> None:
        self.raw = raw
        self.lost = lost

    @property
    def version(self) -> str:
        """What the broker says of itself; empty where it does not."""
        return str((self.raw.server_properties or {}).get("version", ""))

    async def channel(self) -> Channel:
        """A new channel."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        raw = self.raw.channel(on_open_callback=_settle(opened))
        channel = Channel(raw, self.lost)
        await channel.answer(opened)
        return channel

    async def close(self) -> None:
        """Close in order when the broker plays along, else cut the line."""
        if self.lost.done():
            return
        if self.raw.is_open:
            self.raw.close()
            await asyncio.wait([self.lost], timeout=FAREWELL_SECONDS)
        if not self.lost.done():
            # pika has no public way to close without waiting for the peer.
            self.raw._terminate_stream(AMQPError("no farewell"))


class Channel:
    """An open channel. ``closed`` is done, with the reason, when it ended or its connection did."""

    def __init__(self, raw: Any, lost: asyncio.Future[BaseException]) -> None:
        self.raw = raw
        self.closed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        close = _settle(self.closed)
        raw.add_on_close_callback(lambda _channel, reason: close(reason))
        lost.add_done_callback(lambda done: close(done.result()) if not done.cancelled() else None)

    async def ask(self, method: Callable[..., object], *args: Any, **named: Any) -> Any:
        """Call a pika method that reports through ``callback`` and return what it reported.

        Raises why the channel was closed instead, or TimeoutError.
        """
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        method(*args, callback=_settle(answered), **named)
        return await self.answer(answered)

    async def answer(self, future: asyncio.Future[Any], seconds: float = ANSWER_SECONDS) -> Any:
        """The future's result, unless the channel is closed first."""
        await asyncio.wait([future, self.closed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        if self.closed.done():
            raise self.closed.result()
        raise TimeoutError(f"no answer within {seconds:g} s")


async def connect(nodes: Sequence[pika.ConnectionParameters], name: str) -> Connection:
    """Connect to the first node that answers; raises the last one's error."""
    error: BaseException = OSError("no node to connect to")
    for parameters in nodes:
        parameters.client_properties = {"connection_name": name, "product": "Pillarbox"}
        try:
            return await _connect(parameters)
        except (AMQPError, OSError) as failed:
            error = failed
    raise error


async def _connect(parameters: pika.ConnectionParameters) -> Connection:
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[None] = loop.create_future()
    lost: asyncio.Future[BaseException] = loop.create_future()

    def failed(_raw: object, error: BaseException | str) -> None:
        if not opened.done():
            opened.set_exception(error if isinstance(error, BaseException) else OSError(error))

    ready, close = _settle(opened), _settle(lost)
    # pika ends the attempt itself, by the socket and stack time-outs of the parameters.
    raw = AsyncioConnection(
        parameters,
        on_open_callback=lambda _raw: ready(None),
        on_open_error_callback=failed,
        on_close_callback=lambda _raw, reason: close(reason),
        custom_ioloop=loop,
    )
    try:
        await opened
    except asyncio.CancelledError:
        raw.close()  # ends an attempt that is under way, too
        raise
    return Connection(raw, lost)


def _settle(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    def settle(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return settle
