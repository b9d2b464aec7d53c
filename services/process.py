"""Server processes that outlive the command which started them, and are signalled only when they are surely ours.

A process is remembered by pid, start time and boot. A pid that the kernel has given to somebody else since then has
another start time, so it is taken for gone and never signalled.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.place import Place

POLL_S = 0.05
# Prints the pid of the server and ends; the server is then init's child, so nobody has to reap it.
# setsid does not fork here, because a background job of a script is no group leader: $! is the server itself.
LAUNCH = 'setsid "$@" </dev/null >&2 & echo $!'


class ServiceError(Exception):
    """A server could not be fetched, started or stopped; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a server, by the name that `kill`, `start`, `stop` and `cont` use."""

    name: str
    record: Path
    log: Path

    @classmethod
    def at(cls, place: Place, name: str) -> "Process":
        return cls(name, place.path("run") / f"{name}.json", place.path("log") / f"{name}.log")

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | str = "/",
    ) -> None:
        """Starts the command in a session of its own, its output going to the log, and remembers it."""
        with self.log.open("ab") as log:
            launched = subprocess.run(
                ["sh", "-c", LAUNCH, "sh", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                user=user,
                group=_group_of(user),
                extra_groups=None if user is None else [],
                env=None if env is None else dict(env),
                cwd=cwd,
                check=True,
                timeout=30,
            )
        pid = int(launched.stdout)
        self.record.write_text(json.dumps({"pid": pid, "started": _start_time(pid), "boot": _boot()}))

    def pid(self) -> int | None:
        """The pid while the process lives and is ours, else None."""
        try:
            known = json.loads(self.record.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        started = _start_time(known["pid"])
        if started is None or (known["started"], known["boot"]) != (started, _boot()):
            return None
        return int(known["pid"])

    def send(self, number: signal.Signals) -> None:
        """Signals the process and its children, parents first. Raises ServiceError when it does not run."""
        pid = self.pid()
        if pid is None:
            raise ServiceError(f"{self.name} is not running")
        for member in family(pid):
            _send(member, number)

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 20) -> None:
        """Ends the process: asks once, waits, and only then kills it and its children."""
        pid = self.pid()
        if pid is None:
            return
        members = family(pid)
        for member in members:
            _send(member, signal.SIGCONT)  # a stopped process does not see any other signal
        _send(pid, number)
        if not _gone_within(members, seconds):
            self.kill()
        self.record.unlink(missing_ok=True)

    def kill(self, seconds: float = 10) -> None:
        """SIGKILL for the process and its children; returns when all are gone."""
        pid = self.pid()
        if pid is None:
            return
        members = family(pid)
        for member in members:
            _send(member, signal.SIGKILL)
        if not _gone_within(members, seconds):
            raise ServiceError(f"{self.name} is still there {seconds} s after SIGKILL")

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Waits until `ready()`; raises ServiceError with the end of the log when the process dies or time is up."""
        wait_until(ready, seconds, f"{self.name} to be ready", still=lambda: self.pid() is not None, log=self.log)

    def memory(self) -> int:
        """Bytes in memory, children included, shared pages shared out among those that map them (PSS)."""
        pid = self.pid()
        return 0 if pid is None else sum(map(_pss, family(pid)))


def wait_until(
    ready: Callable[[], bool],
    seconds: float,
    what: str,
    *,
    still: Callable[[], bool] = lambda: True,
    log: Path | None = None,
) -> None:
    """Polls until `ready()`. Gives up with ServiceError after `seconds`, or at once when `still()` turns false."""
    deadline = time.monotonic() + seconds
    while not ready():
        alive = still()
        if not alive or time.monotonic() > deadline:
            reason = f"waited {seconds:g} s" if alive else "it ended"
            raise ServiceError(f"gave up waiting for {what}: {reason}\n{tail(log)}")
        time.sleep(POLL_S)


def tail(log: Path | None, lines: int = 15) -> str:
    if log is None or not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def run(
    command: Sequence[str | Path], log: Path, *, seconds: float, user: str | None = None, **options: object
) -> None:
    """Runs a command to its end, its output going to `log`; raises ServiceError with the log's end when it fails."""
    with log.open("ab") as out:
        try:
            subprocess.run(
                [*map(str, command)],
                stdout=out,
                stderr=subprocess.STDOUT,
                user=user,
                group=_group_of(user),
                extra_groups=None if user is None else [],
                check=True,
                timeout=seconds,
                cwd="/",
                **({"stdin": subprocess.DEVNULL} | options),  # type: ignore[call-overload]
            )
        except subprocess.CalledProcessError as error:
            raise ServiceError(f"{command[0]}: exit status {error.returncode}\n{tail(log)}") from error
        except subprocess.TimeoutExpired as error:
            raise ServiceError(f"{command[0]}: not done after {seconds:g} s\n{tail(log)}") from error
        except FileNotFoundError as error:
            raise ServiceError(f"{command[0]}: no such command") from error


def family(pid: int) -> list[int]:
    """The process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    members = [pid]
    for member in members:
        members.extend(children.get(member, []))
    return members


def _gone_within(pids: Sequence[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(_start_time(pid) is not None for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended meanwhile


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, ppid, ...; None when gone or a zombie (proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None when it is gone."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _group_of(user: str | None) -> int | None:
    import pwd

    return None if user is None else pwd.getpwnam(user).pw_gid
