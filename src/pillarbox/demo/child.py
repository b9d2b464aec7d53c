"""The demo's processes: ``python -m pillarbox.demo.child shop|relay|stock``, told what to do by their environment."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from ..consume.sources import make_source
from ..event.destination import Destination
from ..publish.registry import open_publisher
from ..relay import RelaySettings
from ..wiring import relay_for
from .places import engine_for
from .shop import CardDeclined, failing_orders, placing
from .stock import naive_loop, stock_consumer
from .strikes import obey

TASK_VARIABLE = "DEMO_TASK"


def shop(task: dict[str, Any]) -> None:
    """Place the orders from where the last run of this process was killed."""
    engine = engine_for(task["shop_url"])
    publisher = None
    if task["way"] != "outbox":
        publisher = open_publisher(task["broker_url"], deadline=10.0)
    place = placing(task["way"], engine, Destination(*task["destination"]), publisher, _failing(task))
    progress = Path(task["progress"])
    start = int(progress.read_text() or "0") + 1 if progress.exists() else 1
    for number in range(start, task["orders"] + 1):
        progress.write_text(str(number))
        try:
            place(number)
        except CardDeclined:
            continue
    if publisher is not None:
        publisher.close()


def _failing(task: dict[str, Any]) -> frozenset[int]:
    return failing_orders(task["orders"], task["failing"], task["seed"])


def relay(task: dict[str, Any]) -> None:
    """A relay as an application embeds it; the settings are small and short, so that kills find it at work."""
    working = relay_for(task["shop_url"], task["broker_url"], RelaySettings(**task["relay"]))
    signal.signal(signal.SIGTERM, lambda *_: working.stop())
    working.run()


def stock(task: dict[str, Any]) -> None:
    """With the inbox for the outbox way, naively otherwise."""
    engine: Engine = engine_for(task["stock_url"])
    if task["way"] == "outbox":
        stock_consumer(task["consumer"], engine, task["broker_url"], task["source"], task["reading"]).run()
    else:
        naive_loop(engine, make_source(task["broker_url"], task["consumer"], [task["source"]], task["reading"]))


ROLES: dict[str, Callable[[dict[str, Any]], None]] = {"shop": shop, "relay": relay, "stock": stock}

if __name__ == "__main__":
    obey()
    ROLES[sys.argv[1]](json.loads(os.environ[TASK_VARIABLE]))
