"""One connection through a proxy: the client's, and the proxy's own to the server behind it."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends RST
_IN_ORDER = struct.pack("ii", 0, 0)
_CONNECT_DEADLINE = 5.0  # seconds
_ARRIVE_DEADLINE = 1.0  # seconds; over loopback it takes microseconds, unless the other side does not read


class End:
    """One of the two connections of a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        writer.transport.set_write_buffer_limits(0)  # drain() waits until the system has all: memory stays bounded

    async def send(self, data: bytes) -> None:
        """Hand ``data`` to the system; raises OSError when the other side has gone."""
        self.writer.write(data)
        await self.writer.drain()

    async def arrived(self) -> None:
        """Wait until the other side's system has acknowledged all that was sent: a reset would throw the rest away."""
        connection = self.writer.get_extra_info("socket")
        deadline = asyncio.get_running_loop().time() + _ARRIVE_DEADLINE
        while connection.fileno() >= 0 and asyncio.get_running_loop().time() < deadline:
            waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
            if struct.unpack("i", waiting) == (0,):
                return
            await asyncio.sleep(0.001)

    def reset(self) -> None:
        reset_at_close(self.writer.get_extra_info("socket"))
        self.writer.transport.abort()


class Link:
    """Both ends. ``forgotten``: the server's end is closed and the client not told. ``holed``: something was lost."""

    def __init__(self, accepted: socket.socket) -> None:
        self.task: asyncio.Task[None] | None = None
        self.client: End | None = None
        self.server: End | None = None
        self.forgotten = self.holed = False
        self._accepted: socket.socket | None = accepted  # None: asyncio has taken it over

    async def connect(self, host: str, port: int) -> tuple[End, End]:
        """Reach the server; gives the client's end and the server's. Raises OSError when it is not there."""
        accepted, self._accepted = self._accepted, None
        if accepted is not None:
            reset_at_close(accepted)  # should it be cut before it is open; asyncio closes it then
        self.client = End(*await asyncio.open_connection(sock=accepted))
        close_in_order(self.client.writer.get_extra_info("socket"))
        self.server = End(*await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_DEADLINE))
        return self.client, self.server

    def forget_server(self) -> None:
        """Close the server's end, and let the client believe that all is well."""
        if self.server is not None:
            self.forgotten = self.holed = True
            self.server.writer.close()

    async def close(self) -> None:
        """In good order: what was sent arrives first."""
        ends = [end for end in (self.client, self.server) if end is not None]
        for end in ends:
            end.writer.close()
        for end in ends:
            await end.writer.wait_closed()

    def reset(self) -> None:
        """Both sides get a reset (RST) instead of an orderly end, at once."""
        if self._accepted is not None:
            reset_at_close(self._accepted)
            self._accepted.close()
        for end in (self.client, self.server):
            if end is not None:
                end.reset()

    def cut(self) -> None:
        """Reset both sides and end the work on this link."""
        self.reset()
        if self.task is not None:
            self.task.cancel()


def reset_at_close(connection: socket.socket) -> None:
    """Let the connection end by a reset once it is closed."""
    if connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def close_in_order(connection: socket.socket) -> None:
    """Undo :func:`reset_at_close`."""
    if connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _IN_ORDER)
