"""Customers: they send orders, and send them again as long as they do not know how the first try ended."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

PATIENCE_SECONDS = 60.0


class Wish(NamedTuple):
    """One order that a customer wants."""

    number: str
    item: str
    voucher: str | None = None


def wishes(count: int, *, short: float, refused: float) -> Iterator[Wish]:
    """``count`` orders; a share ``short`` wants what is not in stock, a share ``refused`` uses a voucher twice.

    >>> [wish.item for wish in wishes(4, short=0.5, refused=0.0)]
    ['lamp', 'unicorn', 'lamp', 'unicorn']
    """
    for place in range(count):
        item = "unicorn" if _marked(place, short) else "lamp"
        voucher = "summer" if _marked(place, refused) else None
        yield Wish(f"order-{place:05}", item, voucher)


def _marked(place: int, share: float) -> bool:
    """Evenly spread: true for ``share`` of all places."""
    return int((place + 1) * share) > int(place * share)


class Answers(NamedTuple):
    """How the requests ended, and how many were sent again since nobody knew."""

    placed: int
    refused: int
    again: int


def send(port: int, wanted: Sequence[Wish], *, customers: int, per_second: float) -> Answers:
    """Send all, ``customers`` at a time, ``per_second`` at most; raises TimeoutError for a service that stays away."""
    pace, start = threading.Lock(), time.monotonic()
    sent = iter(range(len(wanted)))

    def one(wish: Wish) -> tuple[int, int]:
        with pace:
            due = start + next(sent) / per_second
        time.sleep(max(0.0, due - time.monotonic()))
        return _until_known(port, wish)

    with ThreadPoolExecutor(max_workers=customers) as pool:
        ends = list(pool.map(one, wanted))
    statuses = [status for status, _ in ends]
    return Answers(statuses.count(201), statuses.count(409), sum(tries - 1 for _, tries in ends))


def _until_known(port: int, wish: Wish) -> tuple[int, int]:
    body = json.dumps({"item": wish.item, "quantity": 1, "voucher": wish.voucher})
    deadline, tries = time.monotonic() + PATIENCE_SECONDS, 0
    while time.monotonic() < deadline:
        tries += 1
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("PUT", f"/orders/{wish.number}", body, {"Content-Type": "application/json"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            status = 0  # refused, or cut in the middle: was the order placed? The same number asks again.
        finally:
            connection.close()
        if status in (201, 409):
            return status, tries
        time.sleep(0.2)
    raise TimeoutError(f"no answer to {wish.number} within {PATIENCE_SECONDS:g} s")
