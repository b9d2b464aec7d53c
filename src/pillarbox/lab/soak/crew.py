"""The processes of a soak, seen from outside: started, killed, frozen, thawed, and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any, Final

from ...errors import LabError
from .happened import Happened
from .schedule import Freeze, Kill, RoleName

PATIENCE: Final = 1.0
"""Seconds in which a process has to pass the point where it is to be hit; then it is hit wherever it is."""

START_AGAIN: Final = (0.0, 0.4)
"""Seconds from a death to the next start: a supervisor is not faster."""

AWAY_PAUSE: Final = 0.5  # seconds until a process that ended by itself is started again
STOP_DEADLINE: Final = 20.0  # seconds that a process may take to end after SIGTERM

TaskOf = Callable[[RoleName, int, int], Mapping[str, Any]]
"""What a process is told: by its role, its index, and how often it was started before."""


@dataclass(slots=True)
class Member:
    """One place in the crew, and the process that fills it at the moment."""

    role: RoleName
    index: int
    pid: int | None = None
    starts: int = 0
    started_at: float = 0.0
    due: float | None = 0.0  # when it is to be started; None: not at all
    starting: bool = False
    thaw_at: float | None = None
    armed: Armed | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def can_be_hit(self) -> bool:
        """It runs, is not frozen, and nothing is planned for it."""
        return self.pid is not None and self.thaw_at is None and self.armed is None


@dataclass(frozen=True, slots=True)
class Armed:
    """What is about to happen to a process, and until when it may pass the point by itself."""

    strike: Kill | Freeze
    until: float

    @property
    def number(self) -> int:
        return signal.SIGKILL if isinstance(self.strike, Kill) else signal.SIGSTOP


def pid_of(member: Member) -> int:
    """Of one that runs."""
    assert member.pid is not None
    return member.pid


class Crew:
    """Starts ``members`` of each role and keeps them running. Not thread-safe: call :meth:`tend` again and again.

    ``tell`` is told whatever happened, once it has. Leaving the ``with`` block kills all.
    """

    def __init__(
        self,
        members: Mapping[str, int],
        task_of: TaskOf,
        folder: Path,
        tell: Callable[[Happened], None],
        *,
        seed: int,
        modules: Sequence[str] = (),
    ) -> None:
        self.members = [Member(role, index) for role, count in members.items() for index in range(count)]  # type: ignore[arg-type]
        self._task_of = task_of
        self._folder = folder
        self._tell = tell
        self._dice = Random(f"{seed} starts")
        self._forced: set[int] = set()  # pids that were sent the signal because they did not pass their point
        self._reports: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._gone = False
        with (folder / "nursery.log").open("ab") as log:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "pillarbox.lab.soak.forking", *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is for the lab alone
            )
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._orders: IO[bytes] = self._nursery.stdin
        self._listener = threading.Thread(target=self._listen, args=(self._nursery.stdout,), name="crew", daemon=True)
        self._listener.start()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        try:
            self._nursery.wait(10)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait(10)
        self._listener.join(5)

    # Doing --------------------------------------------------------------------------------------------------------

    def tend(self, seconds: float) -> None:
        """Wait up to ``seconds`` for news, then do what is due: start, thaw, strike who did not pass its point."""
        with self._news:
            if not self._reports and not self._gone:
                self._news.wait(seconds)
            reports, self._reports = self._reports, []
        for report in reports:
            self._heed(report)
        if self._gone:
            raise LabError(f"The process that starts the others has ended. Its log: {self._folder / 'nursery.log'}.")
        now = time.monotonic()
        for member in self.members:
            self._tend(member, now)

    def strike(self, strike: Kill | Freeze) -> bool:
        """Do this to the named process, or to another one of its role; False when none can be hit now."""
        mates = [one for one in self.members if one.role == strike.role]
        order = mates[strike.index :] + mates[: strike.index]
        member = next((one for one in order if one.can_be_hit), None)
        if member is None and isinstance(strike, Kill):  # one that is frozen dies as well
            member = next((one for one in order if one.thaw_at is not None and one.armed is None), None)
        if member is None:
            return False
        now = time.monotonic()
        if strike.point is None or member.thaw_at is not None:
            member.armed = Armed(strike, now)
            self._force(member)
        else:
            member.armed = Armed(strike, now + PATIENCE)
            self._order(do="arm", pid=member.pid, point=strike.point, signal=int(member.armed.number))
        return True

    def thaw_all(self) -> None:
        """Let everybody go on who is frozen."""
        for member in self.members:
            if member.thaw_at is not None:
                member.thaw_at = 0.0
        self.tend(0.0)

    def end(self, roles: Sequence[str], *, kill: bool = False) -> None:
        """End these roles' processes for good, with SIGTERM (SIGKILL after a deadline) or at once."""
        mine = [one for one in self.members if one.role in roles]
        for member in mine:
            member.due = None
            if member.pid is not None:
                self._signal(member, signal.SIGCONT)
                self._signal(member, signal.SIGKILL if kill else signal.SIGTERM)
        deadline = time.monotonic() + STOP_DEADLINE
        while any(one.pid is not None or one.starting for one in mine):
            self.tend(0.1)
            if time.monotonic() > deadline:
                deadline += STOP_DEADLINE
                for member in mine:
                    if member.pid is not None:
                        self._signal(member, signal.SIGKILL)

    def begin(self, roles: Sequence[str]) -> None:
        """Start these roles' processes, all of them."""
        for member in self.members:
            if member.role in roles and member.pid is None:
                member.due = 0.0
        self.tend(0.0)

    # Hearing ------------------------------------------------------------------------------------------------------

    def _listen(self, reports: IO[bytes]) -> None:
        for line in reports:
            with self._news:
                self._reports.append(json.loads(line))
                self._news.notify()
        with self._news:
            self._gone = True
            self._news.notify()

    def _heed(self, report: dict[str, Any]) -> None:
        now = time.monotonic()
        if report["is"] == "started":
            member = next(one for one in self.members if one.name == report["name"])
            member.pid, member.starting, member.started_at = report["pid"], False, now
            member.starts += 1
            if member.due is None:  # it was to end while it was being started
                self._signal(member, signal.SIGKILL)
            return
        member = next(one for one in self.members if one.pid == report["pid"])
        if report["is"] == "stopped":
            self._stopped(member, now)
        else:
            self._ended(member, report["how"], now)

    def _stopped(self, member: Member, now: float) -> None:
        strike = member.armed.strike if member.armed is not None else None
        if not isinstance(strike, Freeze):  # frozen elsewhere before, it passes the point that it was told about
            self._signal(member, signal.SIGCONT)
            return
        self._tell(Happened(time.time(), "freeze", member.name, self._where(member, strike.point), strike.seconds))
        member.armed, member.thaw_at = None, now + strike.seconds
        self._forced.discard(pid_of(member))

    def _ended(self, member: Member, how: str, now: float) -> None:
        pid, armed = pid_of(member), member.armed
        killed = how == "signal 9" and armed is not None and isinstance(armed.strike, Kill)
        if killed and armed is not None:
            self._tell(Happened(time.time(), "kill", member.name, self._where(member, armed.strike.point)))
        elif member.due is not None:
            self._tell(Happened(time.time(), "ended by itself", member.name, how))
        self._forced.discard(pid)
        member.pid = member.thaw_at = member.armed = None
        if member.due is not None:
            member.due = now + (self._dice.uniform(*START_AGAIN) if killed else AWAY_PAUSE)

    def _where(self, member: Member, point: str | None) -> str:
        if member.thaw_at is not None:
            return "frozen"
        return "anywhere" if point is None or member.pid in self._forced else point

    # Tending ------------------------------------------------------------------------------------------------------

    def _tend(self, member: Member, now: float) -> None:
        if member.pid is None:
            if not member.starting and member.due is not None and now >= member.due:
                self._start(member)
            return
        if member.thaw_at is not None and now >= member.thaw_at:
            member.thaw_at = None
            self._signal(member, signal.SIGCONT)
        if member.armed is not None and now >= member.armed.until and member.pid not in self._forced:
            self._force(member)

    def _force(self, member: Member) -> None:
        assert member.armed is not None
        self._forced.add(pid_of(member))
        self._signal(member, member.armed.number)

    def _start(self, member: Member) -> None:
        member.starting = True
        task = dict(self._task_of(member.role, member.index, member.starts))
        log = str(self._folder / f"{member.name}.log")
        self._order(do="start", name=member.name, role=member.role, task=task, log=log)

    def _signal(self, member: Member, number: int) -> None:
        self._order(do="signal", pid=member.pid, signal=int(number))

    def _order(self, **order: Any) -> None:
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except BrokenPipeError as error:
            log = self._folder / "nursery.log"
            raise LabError(f"The process that starts the others has ended. Its log: {log}.") from error
