"""Debian packages: those that must be installed (by root), and those that are only unpacked (by anybody)."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.cache import kept
from services.place import Place
from services.process import ServiceError, run

POLICY = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True, slots=True)
class Package:
    """A package to be installed; one that only brings a command is not needed where the command is there already."""

    name: str
    command: str | None = None

    def installed(self) -> bool:
        if self.command is not None and shutil.which(self.command):
            return True
        status = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status}", self.name],
            capture_output=True,
            text=True,
            timeout=30,
        )
        return status.stdout == "installed"


JAVA = Package("openjdk-17-jre-headless", command="java")
MAVEN = Package("maven", command="mvn")
MMDEBSTRAP = Package("mmdebstrap", command="mmdebstrap")


def missing(packages: Iterable[Package]) -> list[str]:
    """The names of the packages that are not installed, each once."""
    return [package.name for package in dict.fromkeys(packages) if not package.installed()]


def install_line(names: Iterable[str]) -> str:
    """What root has to say for these packages."""
    return f"apt-get update && apt-get install --no-install-recommends {' '.join(names)}"


def install(names: list[str], place: Place) -> None:
    """Installs packages as root, without starting the servers that are in them."""
    log = place.path("log") / "apt.log"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    with _no_server_starts():
        run([*apt, "update"], log, seconds=600, env=environment)
        run([*apt, "install", "-y", "--no-install-recommends", *names], log, seconds=1200, env=environment)


def unpack_suite(place: Place, suite: str, package: str) -> Path:
    """A folder with `package` of a Debian suite and all it depends on: unpacked, not configured, no root, no chroot.

    It is made once and kept in the cache; a suite that moves (sid) stays as it was fetched until the cache is emptied.
    """

    def make(new: Path) -> None:
        command = ["mmdebstrap", "--quiet", "--mode=chrootless", "--variant=extract"]
        # An old stable suite's Release file may be past its date.
        command += ["--aptopt=Acquire::Check-Valid-Until false", f"--include={package}", suite, str(new)]
        run(command, place.path("log") / f"{suite}-{package}.log", seconds=900)
        shutil.rmtree(new / "var" / "cache", ignore_errors=True)

    return kept(place.cache / f"{suite}-{package}", make)


def unpack(place: Place, packages: list[str], name: str) -> Path:
    """A folder with just these packages of this machine's own suite, unpacked, without what they depend on."""
    log = place.path("log") / f"{name}.log"

    def make(new: Path) -> None:
        with tempfile.TemporaryDirectory() as downloads:
            fetch = ["sh", "-c", 'cd "$0" && apt-get -qq download "$@"', downloads, *packages]
            try:
                run(fetch, log, seconds=300)
            except ServiceError:
                if os.geteuid() != 0:
                    raise
                # A new machine has no package lists yet.
                run(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"], log, seconds=600)
                run(fetch, log, seconds=300)
            for archive in sorted(Path(downloads).glob("*.deb")):
                run(["dpkg-deb", "-x", archive, new], log, seconds=120)

    return kept(place.cache / name, make)


@contextmanager
def _no_server_starts() -> Iterator[None]:
    """Says no to invoke-rc.d while packages are installed (policy-rc.d: 101 = forbidden), if nobody says it already."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
