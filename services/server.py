"""What every server can do. A new one is a class like this in a file of its own, and one line in `registry.py`."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.apt import Package
from services.process import Process


class Server(Protocol):
    """One server, or one cluster of them, private to this checkout and listening on 127.0.0.1 alone."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Sequence[Package]:
        """Packages that only root can install."""

    def settings(self) -> Mapping[str, str]:
        """What goes into the env file. The first name is the one that a user sets to bring an own server."""

    def parts(self) -> Mapping[str, Process]:
        """Its processes in the order of their start; empty for something that is only files."""

    def fetch(self) -> None:
        """Downloads and unpacks what the cache does not have yet."""

    def running(self) -> bool:
        """Whether all of it is there; without asking the server itself."""

    def start(self) -> None:
        """Starts what does not run, and returns when the server has answered a real question."""

    def start_part(self, part: str) -> None:
        """Starts one process again, after a fault, and waits for it as `start` does."""

    def end(self) -> None:
        """An orderly stop; the data stays."""
