"""A process of the soak from the inside: it does its role's work, and kills or freezes itself where it is told to."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from ... import faultpoints
from ...errors import PillarboxError

LOG_BYTES = 2_000_000
"""A log is begun anew beyond this: a thousand deaths must not fill the disk."""

UNAVAILABLE = 69
"""The exit status of a process whose database or broker was away when it started; it is started again."""


class Strikes:
    """The orders to this process: at the next passage of a fault point, a signal to itself. One at a time.

    The signal is raised in the very statement that passes the point, so the process is hit there and nowhere else.
    """

    def __init__(self) -> None:
        self._armed: tuple[str, int] | None = None
        faultpoints.attach(self.reach)

    def arm(self, point: str, number: int) -> None:
        """Strike at the next passage."""
        self._armed = (point, number)

    def reach(self, point: str) -> None:
        """The fault hook."""
        armed = self._armed
        if armed is not None and armed[0] == point:
            self._armed = None
            os.kill(os.getpid(), armed[1])

    def listen(self, orders: int) -> None:
        """Read orders until whoever gives them is gone; then this process ends, too."""
        rest = b""
        while data := os.read(orders, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                number, _, point = line.decode().partition(" ")
                self.arm(point, int(number))
        os._exit(70)


def live(role: str, task: Mapping[str, Any], orders: int) -> int:
    """Do the work of ``role`` until it ends or is ended; returns the exit status."""
    from .roles import ROLES

    if os.fstat(2).st_size > LOG_BYTES:
        os.ftruncate(2, 0)
    _log_here()
    strikes = Strikes()
    threading.Thread(target=strikes.listen, args=(orders,), name="orders", daemon=True).start()
    try:
        ROLES[role](task)
    except PillarboxError as error:
        # At the start a process is told of what is away, and leaves it to its supervisor to try again.
        logging.getLogger("pillarbox.lab").warning("%s ends: %s", role, error)
        return UNAVAILABLE
    except BaseException:  # noqa: BLE001 - the status says it, the log keeps it
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def _log_here() -> None:
    logging.basicConfig(
        level=logging.WARNING, format=f"%(asctime)s.%(msecs)03d {os.getpid()} %(name)s %(message)s", datefmt="%H:%M:%S"
    )
    logging.Formatter.converter = time.gmtime


def stop_on_sigterm(stop: Any) -> None:
    """Call ``stop`` on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: stop())
