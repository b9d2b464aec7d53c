"""Names for what the lab makes on a server, and the proof that it was the lab.

Two marks say that a thing is the lab's, and both are there before anything is put into it:

* on the server, beside the name: a comment (PostgreSQL), a marker table (MySQL, MariaDB), a signature in the topic's
  configuration (Kafka), an argument (RabbitMQ). So laboratories on several machines know one another's names.
* on this machine, a journal: one small file per name, written before the thing is made, locked while its process
  lives, and gone when the thing is removed. What is in a journal that nobody holds locked was left by a killed run.

A name with the lab's prefix and without either mark is somebody else's.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..ports import PREFIX

log = logging.getLogger("pillarbox.lab")

MARK: Final = "Made by Pillarbox's fault lab, which removes it"
"""What stands beside each name on a server."""

_KEPT_SECONDS: Final = 30 * 86_400.0
_RANDOM: Final = "[0-9a-f]{12}"
_NAME: Final = re.compile(f"{PREFIX}{_RANDOM}")


@dataclass(frozen=True, slots=True)
class Claim:
    """A name that the lab has taken, for ``cell``. ``kind`` is what it is for: ``database``, ``kafka``, ``rabbitmq``,
    ``folder``. ``folder`` is a temporary folder of that name, which is not made yet."""

    kind: str
    name: str
    cell: str
    folder: Path


def journals() -> Path:
    """The folder of the journals: ``$XDG_STATE_HOME/pillarbox/lab``, by default below ``~/.local/state``."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path("~/.local/state").expanduser()
    return base / "pillarbox" / "lab"


@contextmanager
def claim(kind: str, cell: str) -> Iterator[Claim]:
    """Take a new name. Whoever has removed what was made of it says :func:`forget`; a block that ends well does, too.

    Otherwise the journal stays, as after a kill. Where none can be written the lab runs all the same, and says what
    that means.
    """
    name = PREFIX + secrets.token_hex(6)
    taken = Claim(kind, name, cell, Path(tempfile.gettempdir()) / name)
    file = _write(taken)
    try:
        yield taken
        forget(name)
    finally:
        if file is not None:
            os.close(file)


@contextmanager
def abandoned(kind: str) -> Iterator[tuple[Claim, ...]]:
    """What killed runs on this machine have claimed of this kind, held for the caller alone as long as the block lasts.

    A run that lives keeps its journals locked, so that its names are not among them. Journals of a month ago are
    deleted: what they name was on another server.
    """
    found: list[Claim] = []
    held: list[int] = []
    try:
        for path in sorted(journals().glob(f"{PREFIX}*.json")):
            file = _lock_if_free(path)
            if file is None:
                continue
            claimed = _read(path)
            if time.time() - os.fstat(file).st_mtime > _KEPT_SECONDS:
                path.unlink(missing_ok=True)  # its server is long gone, or somebody has tidied up
                os.close(file)
            elif claimed is not None and claimed.kind == kind:
                found.append(claimed)
                held.append(file)
            else:
                os.close(file)
        yield tuple(found)
    finally:
        for file in held:
            os.close(file)


def claimed_here() -> frozenset[str]:
    """The names that runs on this machine have taken, those of killed runs among them."""
    return frozenset(path.stem for path in journals().glob(f"{PREFIX}*.json"))


def forget(name: str) -> None:
    """Delete the journal of a name: nothing of it is left."""
    if _path(name).exists():  # there may be none, and then perhaps no way to write
        _path(name).unlink(missing_ok=True)


def base_of(name: str) -> str | None:
    """The name that was claimed, of a name that was made from it (``…_shop``, ``….audit``); None: not of that form."""
    found = _NAME.match(name)
    rest = name[found.end() :] if found else ""
    return found.group() if found and (not rest or rest[0] in "_.") else None


def _write(taken: Claim) -> int | None:
    try:
        journals().mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(_path(taken.name), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning(
            "no journal can be written in %s (%s): if this run is killed, what it leaves on a server is recognised"
            " as the lab's all the same, and has to be removed by hand",
            journals(),
            error.strerror,
        )
        return None
    fcntl.flock(file, fcntl.LOCK_EX)
    text = {"kind": taken.kind, "name": taken.name, "cell": taken.cell, "folder": str(taken.folder), "pid": os.getpid()}
    os.write(file, json.dumps(text).encode())
    os.fsync(file)
    return file


def _path(name: str) -> Path:
    return journals() / f"{name}.json"


def _lock_if_free(path: Path) -> int | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its run has just ended
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _read(path: Path) -> Claim | None:
    try:
        text = json.loads(path.read_bytes())
        claimed = Claim(text["kind"], text["name"], text["cell"], Path(text["folder"]))
    except (OSError, ValueError, KeyError, TypeError):  # killed while it was written: before anything was made
        return None
    return claimed if claimed.name == path.stem and base_of(claimed.name) == claimed.name else None
