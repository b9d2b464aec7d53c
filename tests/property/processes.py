"""Relays as processes: SIGKILL, SIGSTOP and SIGTERM are what they are."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from random import Random
from typing import cast

from pillarbox.relay.settings import RelaySettings
from tests.property.broker import Broker
from tests.property.files import FileBroker
from tests.property.rounds import Kind
from tests.property.worlds import SqlWorld, World

MILLISECONDS = 0.008  # for each boundary that a thread would pass


class Child:
    """Implements Alive."""

    def __init__(self, world: World, broker: Broker, random: Random, name: str, settings: RelaySettings) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._killed = False
        path = cast("FileBroker", broker).path
        up = path.with_suffix(f".{name}")
        task = {
            "name": name, "url": cast("SqlWorld", world).url, "path": str(path), "up": str(up), "seed": random.random(),
            "settings": asdict(settings),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.property.child"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        json.dump(task, self._process.stdin)
        self._process.stdin.close()
        self._process.stdin = None  # communicate() would flush it
        self._up = up

    def wait(self) -> None:
        until = time.monotonic() + 30
        while not self._up.exists() and self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)

    @property
    def works(self) -> bool:
        return not self._killed and self._process.poll() is None

    def kill(self, after: int) -> None:
        def strike() -> None:
            self._killed = True
            self._process.kill()

        self._later(after * MILLISECONDS, strike)

    def sleep(self, after: int, seconds: float, dice: Random) -> Kind:
        self._later(after * MILLISECONDS, lambda: self._signal(signal.SIGSTOP))
        self._later(after * MILLISECONDS + seconds, lambda: self._signal(signal.SIGCONT))
        return "stall"

    def lose_answers(self, count: int) -> None:
        """Cannot be done to a process from outside; connections that are cut do it."""

    def leave(self) -> None:
        self._signal(signal.SIGTERM)

    def end(self) -> Counter[str]:
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            _, said = self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, said = self._process.communicate()
            self.error = TimeoutError(f"does not stop: {said}")
        else:
            if self._process.returncode not in (0, -signal.SIGTERM) and not self._killed:  # SIGTERM while it starts
                self.error = RuntimeError(f"ended with {self._process.returncode}: {said}")
        return Counter({"process killed": int(self._killed)})

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    @staticmethod
    def _later(seconds: float, strike: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, strike)
        timer.daemon = True
        timer.start()
