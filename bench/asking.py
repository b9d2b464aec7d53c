"""The role of an HTTP application's clients: requests at a steady rate, timed from the moment they were due.

A request that has to wait for a free connection counts from when it should have begun, so that a stall is seen by all
requests that it held up, not by one. Told "go", it answers with the milliseconds of every request.
"""

from __future__ import annotations

import http.client
import threading
import time
import uuid

from bench.child import Told, questions, say

CLIENTS = 16


def main(told: Told) -> None:
    """``told``: port, rate (requests per second), seconds."""
    say("ready")
    for _ in questions():
        say(measure(told["port"], told["rate"], told["seconds"]))


def measure(port: int, rate: float, seconds: float) -> list[float]:
    """Requests are numbered; each client takes the next one when it is due."""
    lock = threading.Lock()
    numbers = iter(range(int(rate * seconds)))
    start = time.monotonic() + 0.2
    took: list[float] = []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            due = start + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            connection.request("POST", f"/orders/{uuid.uuid4()}")
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the application answered {answer.status}")
            took.append((time.monotonic() - due) * 1000)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took) != int(rate * seconds):
        raise RuntimeError(f"only {len(took)} requests were answered")
    return took
