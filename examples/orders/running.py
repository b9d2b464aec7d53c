"""The services' processes, which come back whenever they die, as systemd or Kubernetes would bring them back."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

PAUSE_SECONDS = 0.5


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def commands(port: int) -> dict[str, list[str]]:
    """What a person would type, by service."""
    uvicorn = ["uvicorn", "examples.orders.orders:app", "--port", str(port), "--log-level", "warning"]
    return {
        "orders": [sys.executable, "-m", *uvicorn, "--timeout-graceful-shutdown", "10"],
        "decisions": [sys.executable, "-m", "pillarbox", "consume", "examples.orders.orders:consumer"],
        "stock": [sys.executable, "-m", "examples.orders.stock"],
    }


class Service:
    """One service's process, and the thread that starts it again. ``starts`` counts."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.starts = 0
        self._command = list(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"keep-{name}", daemon=True)

    def start(self) -> None:
        """Start it, and keep it running."""
        self._thread.start()

    def kill(self) -> bool:
        """SIGKILL: no farewell, no last write. False when it was not running just now."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return False
            self._process.kill()
            return True

    def end(self, seconds: float = 20) -> None:
        """SIGTERM, and after ``seconds`` SIGKILL; it does not come back."""
        self._ending.set()
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
        self._thread.join(seconds)
        self.kill()
        self._thread.join(5)

    def _keep(self) -> None:
        while not self._ending.is_set():
            with self._lock, self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=dict(os.environ))
                self.starts += 1
            self._process.wait()
            self._ending.wait(PAUSE_SECONDS)


class Running:
    """All processes, from entering the block to leaving it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        made = {name: Service(name, line, folder / f"{name}.log") for name, line in commands(self.port).items()}
        self.services: Mapping[str, Service] = made

    def __enter__(self) -> Self:
        for service in self.services.values():
            service.start()
        return self

    def wait_until_up(self, seconds: float = 60) -> None:
        """Until the API answers; raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise TimeoutError(f"the order service is not up after {seconds:g} s: see {self.folder}/orders.log")

    def __exit__(self, *_: object) -> None:
        for service in self.services.values():
            service.end()
