"""Bringing servers up and down, and saying where they are."""

import os
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from services import apt
from services.place import Place
from services.process import ServiceError
from services.registry import servers
from services.server import Server


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one server in `up`; times in seconds.

    `missing` names the packages that root would have to install for it. `problem` says why it is not up.
    """

    name: str
    state: str
    fetched_s: float = 0.0
    ready_s: float = 0.0
    problem: str = ""
    missing: tuple[str, ...] = ()


def up(names: Collection[str] = (), tell: Callable[[Outcome], None] = lambda _outcome: None) -> list[Outcome]:
    """Fetches and starts the named servers, or all, in parallel; a server that runs already is left alone.

    `tell` hears of each as soon as it is known, from several threads.

    One whose variable is in the environment belongs to the user and is not started. Packages that are missing are
    installed if we are root; otherwise the outcome of the servers that need them says what root has to do.
    """
    place = Place.of_checkout()
    wanted = _chosen(place, names)
    with place.locked():
        ours = [server for server in wanted if not _given(server)]
        outcomes = [Outcome(server.name, "is yours") for server in wanted if _given(server)]
        for outcome in outcomes:
            tell(outcome)
        lacking = apt.missing(package for server in ours for package in server.needs)
        if lacking and os.geteuid() == 0:
            _install(lacking, place)
        try:
            with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
                outcomes += pool.map(lambda server: _bring_up(server, tell), ours)
        finally:
            _write_env(place)
    return outcomes


def down(names: Collection[str] = ()) -> list[str]:
    """Stops the named servers, or all; returns those of which anything ran. Data and downloads stay."""
    place = Place.of_checkout()
    with place.locked():
        there = [server for server in _chosen(place, names) if _any_part(server)]
        with ThreadPoolExecutor(max_workers=max(1, len(there))) as pool:
            list(pool.map(lambda server: server.end(), there))
        _write_env(place)
    return [server.name for server in there]


def urls() -> dict[str, str]:
    """The settings of all servers that can be used now, those of the environment first."""
    known: dict[str, str] = {}
    for server in servers(Place.of_checkout()):
        settings = server.settings()
        if _given(server):
            known |= {name: os.environ[name] for name in settings if name in os.environ}
        elif server.running():
            known |= settings
    return known


def running() -> list[str]:
    """The names of the servers all of whose processes run."""
    return [server.name for server in servers(Place.of_checkout()) if server.parts() and server.running()]


def partly_running() -> list[str]:
    """The names of the servers of which at least one process runs."""
    return [server.name for server in servers(Place.of_checkout()) if _any_part(server)]


def memory() -> dict[str, int]:
    """Bytes in memory of each process that runs, its children included."""
    parts = [part for server in servers(Place.of_checkout()) for part in server.parts().values()]
    return {part.name: part.memory() for part in parts if part.pid() is not None}


def _install(packages: list[str], place: Place) -> None:
    """When it fails, some servers stay away and the others come up all the same."""
    print("installing Debian packages:", *packages, flush=True)
    try:
        apt.install(packages, place)
    except ServiceError as error:
        print(error, file=sys.stderr)


def _bring_up(server: Server, tell: Callable[[Outcome], None]) -> Outcome:
    outcome = _outcome_of(server)
    tell(outcome)
    return outcome


def _outcome_of(server: Server) -> Outcome:
    if lacking := apt.missing(server.needs):
        return Outcome(server.name, "missing", problem=f"needs {', '.join(lacking)}", missing=tuple(lacking))
    already = server.running()
    begin = fetched = time.monotonic()
    try:
        server.fetch()
        fetched = time.monotonic()
        server.start()
    except (ServiceError, OSError) as error:
        return Outcome(server.name, "failed", fetched - begin, problem=str(error))
    state = "was up" if already else "started"
    return Outcome(server.name, state, fetched - begin, time.monotonic() - fetched)


def _chosen(place: Place, names: Collection[str]) -> list[Server]:
    known = servers(place)
    if unknown := set(names) - {server.name for server in known}:
        there_are = ", ".join(server.name for server in known)
        raise ServiceError(f"no such server: {', '.join(sorted(unknown))}; there are {there_are}")
    return [server for server in known if not names or server.name in names]


def _given(server: Server) -> bool:
    return next(iter(server.settings())) in os.environ


def _any_part(server: Server) -> bool:
    return any(process.pid() is not None for process in server.parts().values())


def _write_env(place: Place) -> None:
    new = place.env_file.with_name("env.new")
    new.write_text("".join(f"{name}={value}\n" for name, value in urls().items()))
    new.rename(place.env_file)  # a reader sees the old file or the new one, never half of it
