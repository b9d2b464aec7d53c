"""The role of other writers: events at a steady rate, many in each transaction, so that they cost little themselves.

It writes until it is told to end, and then says how many.
"""

from __future__ import annotations

import threading
import time

from sqlalchemy import create_engine

from bench.child import Told, questions, say
from pillarbox import Event, Outbox

PER_TRANSACTION = 50
KEYS = 1000
BODY = {"text": "x" * 280}


def main(told: Told) -> None:
    """``told``: database, destination, rate in events per second."""
    stop, written = threading.Event(), [0]
    thread = threading.Thread(target=feed, args=(told, stop, written))
    say("ready")
    for _ in questions():
        thread.start()
        say("going")
    stop.set()
    thread.join(30)
    say(written[0])


def feed(told: Told, stop: threading.Event, written: list[int]) -> None:
    """One transaction after the other, each when it is due; what is late is not made up for."""
    engine = create_engine(told["database"])
    outbox = Outbox(bind=engine)
    interval = PER_TRANSACTION / told["rate"]
    due = time.monotonic()
    while not stop.is_set():
        events = [
            Event(BODY, type="reading.taken", aggregate=("meter", (written[0] + n) % KEYS))
            for n in range(PER_TRANSACTION)
        ]
        with engine.begin() as connection:
            outbox.add_all(connection, events, to=told["destination"])
        written[0] += PER_TRANSACTION
        due = max(due + interval, time.monotonic() - interval)
        stop.wait(max(0.0, due - time.monotonic()))
    engine.dispose()
