"""The C driver MySQLdb (mysqlclient), which has no Linux wheel: Debian's build, for Debian 12's CPython 3.11.

No server, only files. `PILLARBOX_TEST_MYSQLDB_PATH` is a folder to put on `sys.path`. Before the import, the process
has to load `libmariadb.so.3` from it (`ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)`), or to have been started with it in
LD_LIBRARY_PATH. For the caching_sha2_password of MySQL 8 and later, MARIADB_PLUGIN_DIR has to name its `plugin`.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services import apt
from services.apt import Package
from services.cache import kept
from services.place import Place
from services.process import Process

PACKAGES = ["python3-mysqldb", "libmariadb3"]


@dataclass(frozen=True, slots=True)
class MySQLdb:
    place: Place
    name: str = "mysqldb"
    needs: Sequence[Package] = ()

    def settings(self) -> Mapping[str, str]:
        return {"PILLARBOX_TEST_MYSQLDB_PATH": str(self.place.cache / "mysqldb")}

    def parts(self) -> Mapping[str, Process]:
        return {}

    def fetch(self) -> None:
        """Gathers the module, the client library and its login plugins in one folder."""
        packages = apt.unpack(self.place, PACKAGES, "mysqldb-packages")
        libraries = packages / "usr/lib/x86_64-linux-gnu"

        def make(new: Path) -> None:
            shutil.copytree(packages / "usr/lib/python3/dist-packages/MySQLdb", new / "MySQLdb")
            shutil.copytree(libraries / "libmariadb3/plugin", new / "plugin")
            shutil.copy(libraries / "libmariadb.so.3", new)

        kept(self.place.cache / "mysqldb", make)

    def running(self) -> bool:
        return (self.place.cache / "mysqldb").exists()

    def start(self) -> None:
        """Nothing: files are there or not."""

    def start_part(self, part: str) -> None:
        """Nothing: it has no parts."""

    def end(self) -> None:
        """Nothing: the cache is kept."""
