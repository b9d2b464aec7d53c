"""A TCP proxy that breaks connections in the ways that networks do, and understands nothing of what passes through it.

It stands on 127.0.0.1 between a client and any server. What it can do to them:

=================  ===================================================================================================
``cut``            reset every connection now; new ones are accepted
``cut_after``      reset every connection at a byte, in the one direction or the other
``lose_answers``   requests arrive, answers do not: the client cannot know what the server has done
``half_open``      the server has closed, the client is not told
``freeze``         connections stay open, nothing passes; ``thaw`` lets all of it through
``delay``          everything arrives later
``blackhole``      who tries to connect gets no answer at all
``refuse``         every connection is reset, and new ones as soon as they come
``heal``           as new
=================  ===================================================================================================
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

from ..errors import CannotListen, ProxyClosed
from .link import End, Link, reset_at_close

_PIECE = 65_536  # bytes read at once; a connection holds at most three of them for each direction
_BACKLOG = 100  # connections that wait to be accepted
_DEADLINE = 5.0  # seconds for a change to be in force


class FaultProxy:
    """Passes bytes between its own port and a server until told otherwise. Any thread may call its methods.

    Each method returns when the change is in force. Faults add up until :meth:`heal`. Memory is bounded: who sends
    faster than the other side reads has to wait.

    >>> with FaultProxy("127.0.0.1", 5432) as proxy:
    ...     proxy.lose_answers()
    ...     proxy.heal()
    """

    def __init__(self, host: str, port: int, *, listen_on: int = 0) -> None:
        """Listen on 127.0.0.1, at ``listen_on`` or a free port, for connections to ``host:port``.

        The server need not be there yet. Raises :class:`CannotListen` when the port is taken.
        """
        self.sent = 0
        """Bytes from clients that were handed to the server."""
        self.answered = 0
        """Bytes from the server that were handed to clients."""
        self.lost = 0
        """Bytes from the server that no client will get: more than 0 says that it did answer."""
        self._target = (host, port)
        try:
            self._listener = socket.create_server(("127.0.0.1", listen_on), backlog=_BACKLOG)
        except OSError as error:
            raise CannotListen(f"Cannot listen on 127.0.0.1:{listen_on}: {error.strerror}.") from error
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._links: set[Link] = set()
        self._answers_lost = self._refusing = False
        self._delay = 0.0
        self._left: dict[bool, int | None] = {True: None, False: None}  # bytes until the cut, by `answers`
        self._plugs: list[socket.socket] = []  # they fill the queue of connections that wait to be accepted
        self._ready = threading.Event()
        name = f"fault-proxy-{self.port}"
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def connections(self) -> int:
        """How many connections are open through the proxy."""
        return len(self._links)

    def through(self, url: str) -> str:
        """``url`` with the proxy in the place of the server: user, path and options stay as they are.

        It is for clients that go where they are told; one that asks a server for other addresses (Kafka) leaves again.

        >>> with FaultProxy("db", 5432) as proxy:
        ...     url = proxy.through("postgresql+psycopg://shop:secret@db:5432/shop?sslmode=disable")
        >>> url.replace(str(proxy.port), "PORT")
        'postgresql+psycopg://shop:secret@127.0.0.1:PORT/shop?sslmode=disable'
        """
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def cut(self) -> None:
        """Reset every connection. New ones are accepted."""
        self._do(self._cut)

    def cut_after(self, count: int, *, answers: bool = False) -> None:
        """Let ``count`` more bytes through, then reset every connection, once. New ones are accepted.

        It counts what clients send, of all connections together, or with ``answers`` what the server sends. The bytes
        before the cut arrive; with 0 the next byte is the first one that does not.
        """
        self._do(lambda: self._left.update({answers: count}))

    def delay(self, seconds: float) -> None:
        """Let each piece of up to 64 KiB wait so long, in both directions: a round trip takes twice as long."""
        self._do(lambda: setattr(self, "_delay", seconds))

    def freeze(self) -> None:
        """Keep connections open, accept new ones, and let nothing through, not even that one side has closed."""
        self._do(lambda: self._flowing.clear())

    def thaw(self) -> None:
        """Let everything through again, what was held up included."""
        self._do(lambda: self._flowing.set())

    def lose_answers(self) -> None:
        """What the server says from now on is lost, its goodbye included; what clients send still reaches it."""
        self._do(lambda: setattr(self, "_answers_lost", True))

    def half_open(self) -> None:
        """Close the connections that are open now at the server, and tell their clients nothing; new ones work.

        As when a server's machine has lost its power, or a firewall has forgotten the connection.
        """
        self._do(self._forget_server)

    def blackhole(self) -> None:
        """Answer no one who tries to connect: their connect() waits. Connections that are open go on.

        On Linux the system itself drops them, since the queue of the listening socket is full; elsewhere they may be
        connected, and never hear a word. After :meth:`heal` they get through when their system tries again, which is
        1, 3 and 7 s after the first time.
        """
        self._do(self._plug)

    def refuse(self) -> None:
        """Reset every connection, and new ones as soon as they come."""
        self._do(self._refuse)

    def say(self, data: bytes) -> None:
        """Send ``data`` to all clients as if the server had, while the link is idle (or it lands inside a frame)."""
        self._do(lambda: self._say(data))

    def heal(self) -> None:
        """As new. Connections of which something was lost are reset, since they have a hole."""
        self._do(self._heal)

    def close(self) -> None:
        """Reset all connections, end the thread and free the port. A second call does nothing."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # its loop has just ended
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(_DEADLINE)

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, change: Callable[[], object]) -> None:
        done = threading.Event()
        try:
            self._loop.call_soon_threadsafe(change)
            self._loop.call_soon_threadsafe(done.set)
        except RuntimeError as error:  # its loop is closed
            raise ProxyClosed(f"The proxy on port {self.port} is closed.") from error
        if not done.wait(_DEADLINE):
            raise ProxyClosed(f"The proxy on port {self.port} did not answer within {_DEADLINE:g} s.")

    # From here on everything runs in the proxy's own thread.

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing, self._flowing = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        self._loop.add_reader(self._listener, self._accept)
        self._ready.set()
        try:
            await self._closing.wait()
        finally:
            self._unplug()
            self._loop.remove_reader(self._listener)
            self._listener.close()
            tasks = [link.task for link in self._links if link.task]
            self._cut()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):  # who knocked has gone
            self._welcome(self._listener.accept()[0])

    def _welcome(self, connection: socket.socket) -> None:
        if self._refusing:
            reset_at_close(connection)
            connection.close()
            return
        connection.setblocking(False)
        link = Link(connection)
        self._links.add(link)
        link.task = self._loop.create_task(self._join(link))
        link.task.add_done_callback(lambda _: self._links.discard(link))

    async def _join(self, link: Link) -> None:
        try:
            client, server = await link.connect(*self._target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_requests(link, client, server))
                both.create_task(self._pass_answers(link, client, server))
            await link.close()
        except* (OSError, asyncio.CancelledError):  # the server is not there, one side has reset, or it was cut
            link.reset()

    async def _pass_requests(self, link: Link, client: End, server: End) -> None:
        while data := await self._read(client):
            if link.forgotten:
                continue
            passing, last = self._up_to_the_cut(data, answers=False)
            try:
                await server.send(passing)
            except OSError:
                if not self._silent(link):
                    raise
                link.forgotten = True
            else:
                self.sent += len(passing)
            if last:
                await server.arrived()
                self._cut_once(answers=False)
        server.writer.write_eof()

    async def _pass_answers(self, link: Link, client: End, server: End) -> None:
        try:
            while data := await self._read(server):
                if self._silent(link):
                    link.holed = True
                    self.lost += len(data)
                    continue
                passing, last = self._up_to_the_cut(data, answers=True)
                await client.send(passing)
                self.answered += len(passing)
                if last:
                    await client.arrived()
                    self._cut_once(answers=True)
        except OSError:
            if not self._silent(link):
                raise
        if self._silent(link):
            link.holed = True
        else:
            client.writer.write_eof()

    async def _read(self, end: End) -> bytes:
        """What comes next from this end, b"" for its orderly close; once it may pass."""
        try:
            data = await end.reader.read(_PIECE)
        except OSError:
            await self._flowing.wait()  # nobody is told of a reset, either
            raise
        if self._delay:
            await asyncio.sleep(self._delay)
        await self._flowing.wait()
        return data

    def _silent(self, link: Link) -> bool:
        return self._answers_lost or link.forgotten

    def _up_to_the_cut(self, data: bytes, *, answers: bool) -> tuple[bytes, bool]:
        """What of ``data`` passes, and whether connections are cut behind it."""
        left = self._left[answers]
        if left is None:
            return data, False
        self._left[answers] = max(left - len(data), 0)
        return data[:left], len(data) >= left

    def _cut_once(self, *, answers: bool) -> None:
        self._left[answers] = None
        self._cut()

    def _cut(self) -> None:
        for link in list(self._links):
            link.cut()

    def _forget_server(self) -> None:
        for link in self._links:
            link.forget_server()

    def _refuse(self) -> None:
        self._refusing = True
        self._cut()

    def _say(self, data: bytes) -> None:
        for link in self._links:
            if link.client is not None:
                link.client.writer.write(data)

    def _plug(self) -> None:
        """Stop accepting and fill the queue, so that the system drops whoever knocks (Linux; tcp(7), listen(2))."""
        if self._plugs:
            return
        self._loop.remove_reader(self._listener)
        self._listener.listen(0)
        for _ in range(4):  # one fits, or two
            plug = socket.socket()
            plug.settimeout(0.05)  # within the machine it is at once or never; so long the traffic stands still
            self._plugs.append(plug)
            try:
                plug.connect(("127.0.0.1", self.port))
            except OSError:
                break

    def _unplug(self) -> None:
        if not self._plugs:
            return
        own = {plug.getsockname() for plug in self._plugs}
        for plug in self._plugs:
            plug.close()
        self._plugs.clear()
        self._listener.listen(_BACKLOG)
        with suppress(BlockingIOError):
            while True:
                connection, address = self._listener.accept()
                if address in own:
                    connection.close()
                else:
                    self._welcome(connection)
        self._loop.add_reader(self._listener, self._accept)

    def _heal(self) -> None:
        for link in list(self._links):
            if link.holed:
                link.cut()
        self._answers_lost = self._refusing = False
        self._left = {True: None, False: None}
        self._delay = 0.0
        self._flowing.set()
        self._unplug()


@contextmanager
def fault_proxy(host: str, port: int, *, listen_on: int = 0) -> Iterator[FaultProxy]:
    """A proxy in front of a server, closed at the end."""
    with FaultProxy(host, port, listen_on=listen_on) as proxy:
        yield proxy
