"""The processes of a run's cells: all are forked from one, and all call back on one socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from ..errors import LabError
from .grounds.claims import claim
from .grounds.folders import own_folder
from .process import Process

_ROLE_MODULES: Final = ("pillarbox.lab.roles", "sqlalchemy.dialects.sqlite")


class Crew:
    """Starts processes for all cells of a run; any thread may ask. Leaving the ``with`` block kills all."""

    def __init__(self, modules: Collection[str] = ()) -> None:
        self._place = ExitStack()  # claimed, so that the next run removes what is left of one that is killed
        claimed = self._place.enter_context(claim("folder", "crew"))
        self._place.enter_context(own_folder(claimed))
        folder = claimed.folder
        self._socket_path = str(folder / "line")
        self._listening = self._place.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            self._listening.bind(self._socket_path)
        except OSError as error:
            self._place.close()
            raise LabError(
                f"The lab's processes cannot meet at {self._socket_path}: {error}.",
                fix="Point TMPDIR at a folder with a short name: a socket's path has a hundred characters at most.",
            ) from error
        self._listening.listen(100)
        self._processes: dict[str, Process] = {}
        self._by_pid: dict[int, Process] = {}
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._log_path = folder / "log"
        with self._log_path.open("ab") as log:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "pillarbox.lab.forking", *_ROLE_MODULES, *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._orders: IO[bytes] = self._nursery.stdin
        self._threads = [
            threading.Thread(target=self._hear, args=(self._nursery.stdout,), name="lab-crew", daemon=True),
            threading.Thread(target=self._answer_calls, name="lab-lines", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):  # it is gone already
            self._orders.close()  # the nursery kills its children and ends
        try:
            self._nursery.wait(10)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait(10)
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(5)
        assert self._nursery.stdout is not None
        self._nursery.stdout.close()
        self._place.close()

    def log_of(self, cell: str) -> Path:
        """Where the processes of a cell write what they print; gone with the crew."""
        return self._log_path.with_name(f"{cell}.log")

    def start(self, role: str, task: Mapping[str, Any], *, waits_at: Collection[str] = (), log: Path) -> Process:
        """Fork a process that does the work of ``role``; it waits at these points until it is answered.

        What it prints goes to the file ``log``.
        """
        name = f"{role}-{next(self._numbers)}"
        process = Process(role, name, self._signal)
        with self._lock:
            self._processes[name] = process
        told = {**task, "line": self._socket_path, "name": name, "waits_at": sorted(waits_at)}
        self._order({"do": "start", "name": name, "role": role, "task": told, "log": str(log)})
        return process

    def _signal(self, pid: int, number: int) -> None:
        self._order({"do": "signal", "pid": pid, "signal": int(number)})

    def _order(self, order: Mapping[str, Any]) -> None:
        with self._lock:
            try:
                self._orders.write(json.dumps(order).encode() + b"\n")
                self._orders.flush()
            except (OSError, ValueError) as error:
                text = self._log_path.read_text(errors="replace")[-1000:]
                raise LabError(f"The process that starts the others has ended: {text}") from error

    def _hear(self, reports: IO[bytes]) -> None:
        for line in reports:
            report = json.loads(line)
            if report["is"] == "started":
                process = self._by_pid[report["pid"]] = self._processes[report["name"]]
                process.started(report["pid"])
            elif report["is"] == "stopped":
                self._by_pid[report["pid"]].stopped()
            else:
                self._by_pid.pop(report["pid"]).ended(report["how"])
        for process in list(self._by_pid.values()):  # the nursery is gone, and its children with it
            process.ended("signal 9")

    def _answer_calls(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:  # closed: the run is over
                return
            threading.Thread(target=self._follow, args=(line,), name="lab-line", daemon=True).start()

    def _follow(self, line: socket.socket) -> None:
        process: Process | None = None
        try:
            with line, line.makefile("rb") as said:
                for text in said:
                    what = json.loads(text)
                    if process is None:
                        process = self._processes[what["name"]]
                        process.connected(line)
                    else:
                        process.said(what)
        except (OSError, ValueError):  # killed in the middle of a word
            pass
        finally:
            if process is not None:
                process.fell_silent()
