"""Breaking single processes of the servers, and putting them right again."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from services.place import Place
from services.process import Process, ServiceError
from services.registry import servers
from services.server import Server


def kill(part: str) -> None:
    """SIGKILL for one process and its children, as when the machine takes it away; returns when they are gone."""
    process = _find(part)[1]
    if process.pid() is None:
        raise ServiceError(f"{part} is not running")
    process.kill()


def end(part: str) -> None:
    """SIGTERM, as an operator stops it; returns when the process is gone. A broker hands its partitions over first."""
    process = _find(part)[1]
    if process.pid() is None:
        raise ServiceError(f"{part} is not running")
    process.end(seconds=40)


def start(*parts: str) -> None:
    """Starts killed processes again, together, and waits until each answers: a broker, until it is registered.

    A killed broker is let in again only when its old session is over, 6 s after the kill; its replicas may still have
    to catch up then.
    """
    owners = [(_find(part)[0], part) for part in parts]
    with Place.of_checkout().locked(), ThreadPoolExecutor(max_workers=len(parts)) as pool:
        list(pool.map(lambda owner: owner[0].start_part(owner[1]), owners))


def stop(part: str) -> None:
    """SIGSTOP: the process and its children freeze, and their connections stay open."""
    _find(part)[1].send(signal.SIGSTOP)


def cont(part: str) -> None:
    """SIGCONT: a frozen process goes on."""
    _find(part)[1].send(signal.SIGCONT)


@contextmanager
def killed(*parts: str) -> Iterator[None]:
    """These processes are dead inside the block and up again after it."""
    try:
        for part in parts:
            kill(part)
        yield
    finally:
        start(*parts)


@contextmanager
def ended(*parts: str) -> Iterator[None]:
    """These processes are stopped in order inside the block and up again after it."""
    try:
        for part in parts:
            end(part)
        yield
    finally:
        start(*parts)


@contextmanager
def stopped(*parts: str) -> Iterator[None]:
    """These processes are frozen inside the block and go on after it."""
    try:
        for part in parts:
            stop(part)
        yield
    finally:
        for part in parts:
            cont(part)


def _find(part: str) -> tuple[Server, Process]:
    known = servers(Place.of_checkout())
    for server in known:
        if part in server.parts():
            return server, server.parts()[part]
    there_are = ", ".join(name for server in known for name in server.parts())
    raise ServiceError(f"no such part: {part}; there are {there_are}")
