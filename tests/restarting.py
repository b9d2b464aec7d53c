"""A command that has something done in this process: restarts of servers that a test owns, for what takes commands."""

from __future__ import annotations

import shlex
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ASK = (
    "import socket, sys; asked = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
    "sys.exit(asked.recv(1) != b'1')"
)


class Commanded:
    """``command`` calls ``do``, and ends when that has: status 0, or 1 when it raised. ``times`` counts calls."""

    def __init__(self, do: Callable[[], None]) -> None:
        self.times = 0
        self.errors: list[BaseException] = []
        self._do = do
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.command = shlex.join([sys.executable, "-c", _ASK, str(self._listening.getsockname()[1])])
        self._thread = threading.Thread(target=self._serve, name="commanded", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """After the call that is under way."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while True:
            try:
                asked, _ = self._listening.accept()
            except OSError:
                return
            with asked:
                asked.sendall(self._answer())

    def _answer(self) -> bytes:
        try:
            self._do()
        except Exception as error:  # noqa: BLE001 - the command's status says it, the test shows it
            self.errors.append(error)
            return b"0"
        self.times += 1
        return b"1"


@contextmanager
def commanded(do: Callable[[], None]) -> Iterator[Commanded]:
    """For one test."""
    made = Commanded(do)
    try:
        yield made
    finally:
        made.close()
