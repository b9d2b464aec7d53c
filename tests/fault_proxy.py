"""A TCP proxy that breaks connections in the ways that networks do: cut, frozen, answers lost, nobody there."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends RST


class FaultProxy:
    """Passes bytes between its own port and a server until told otherwise. Any thread may call its methods."""

    def __init__(self, host: str, port: int) -> None:
        self.sent = 0  # bytes from clients that reached the server
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._answers_lost = False
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Reset every connection. New ones are accepted."""
        self._do(lambda: [_reset(writer) for writer in list(self._writers)])

    def freeze(self) -> None:
        """Keep connections open, accept new ones, and let nothing through."""
        self._do(self._flowing.clear)

    def thaw(self) -> None:
        """Let everything through again, what was held up included."""
        self._do(self._flowing.set)

    def lose_answers(self) -> None:
        """What the server says from now on is lost; what clients send still reaches it."""
        self._do(lambda: setattr(self, "_answers_lost", True))

    def refuse(self) -> None:
        """Reset every connection, and new ones as soon as they come."""
        self._do(lambda: setattr(self, "_refusing", True))
        self.cut()

    def say(self, data: bytes) -> None:
        """Send ``data`` to all clients as if the server had, while the link is idle (or it lands inside a frame)."""
        self._do(lambda: [writer.write(data) for writer in self._clients])

    def heal(self) -> None:
        """As new. Connections whose answers were lost are cut, since they have a hole."""
        if self._answers_lost:
            self.cut()
        self._do(
            lambda: (setattr(self, "_answers_lost", False), setattr(self, "_refusing", False), self._flowing.set())
        )

    def close(self) -> None:
        """End all connections and the thread."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._listener.close()

    def _do(self, change: Callable[[], object]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (change(), done.set()))
        assert done.wait(5)

    def _run(self) -> None:
        self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            _reset(writer)
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, back}
        self._clients.add(writer)
        await asyncio.gather(self._pump(reader, back, answers=False), self._pump(there, writer, answers=True))
        self._writers -= {writer, back}
        self._clients.discard(writer)

    async def _pump(self, source: asyncio.StreamReader, drain: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while data := await source.read(65_536):
                await self._flowing.wait()
                if answers and self._answers_lost:
                    continue
                if not answers:
                    self.sent += len(data)
                drain.write(data)
                await drain.drain()
        except OSError:
            _reset(drain)
        else:
            drain.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


@contextmanager
def fault_proxy(host: str, port: int) -> Iterator[FaultProxy]:
    """A proxy in front of a server, for one test."""
    proxy = FaultProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
