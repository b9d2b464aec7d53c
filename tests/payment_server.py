"""A small payment provider over HTTP, in a process of its own. It never forgets a charge, whoever dies around it.

``POST /charges {"reference", "amount"}`` with an ``Idempotency-Key``: charges, and with ``--idempotent`` gives the
first charge again for a key that it knows. ``"hold": true`` charges and then keeps the answer until the client is
gone. ``POST /refunds {"charge"}`` likewise. ``GET /charges`` lists all, ``?reference=`` those of one; ``GET /refunds``.
``"refuse": true`` is a final no (402), ``"fail": true`` an answer that says nothing (500, charged), ``"busy": true`` a
refusal before anything happened (503).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
HELD_AT_MOST = 30.0


class Books:
    """Charges and refunds, by arrival."""

    def __init__(self, *, idempotent: bool) -> None:
        self.lock = threading.Lock()
        self._idempotent = idempotent
        self._by_key: dict[tuple[str, str], dict[str, Any]] = {}
        self.entries: dict[str, list[dict[str, Any]]] = {"/charges": [], "/refunds": []}

    def enter(self, path: str, key: str, order: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            known = self._by_key.get((path, key))
            if known is not None and self._idempotent:
                return known
            entry = {"id": len(self.entries[path]) + 1, "key": key, **order}
            self.entries[path].append(entry)
            self._by_key[path, key] = entry
            return entry


class Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    books: Books

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wish = {name: order.pop(name, False) for name in ("hold", "refuse", "fail", "busy")}
        if wish["refuse"] or wish["busy"]:
            return self._answer(402 if wish["refuse"] else 503, {"error": "no"})
        entry = self.books.enter(self.path, self.headers["Idempotency-Key"], order)
        if wish["hold"]:
            self.connection.settimeout(HELD_AT_MOST)
            self.connection.recv(1)  # returns when the client is gone
            self.close_connection = True
            return None
        return self._answer(500 if wish["fail"] else 200, entry)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        wanted = parse_qs(address.query).get("reference")
        with self.books.lock:
            found = [one for one in self.books.entries[address.path] if not wanted or one.get("reference") in wanted]
        self._answer(200, found)

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class Bank:
    """The provider as its customers reach it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def charge(self, reference: str, key: str, **wishes: bool) -> dict[str, Any]:
        return self._send("/charges", {"reference": reference, "amount": 17, **wishes}, key)

    def refund(self, charge: int, key: str, **wishes: bool) -> dict[str, Any]:
        return self._send("/refunds", {"charge": charge, **wishes}, key)

    def charges(self, reference: str) -> list[dict[str, Any]]:
        return self._ask(f"/charges?reference={quote(reference)}")

    def find(self, reference: str) -> dict[str, Any] | None:
        """A customer's look-up by the key of the business."""
        return next(iter(self.charges(reference)), None)

    def refunds(self, charge: int) -> list[dict[str, Any]]:
        return [one for one in self._ask("/refunds") if one["charge"] == charge]

    def _send(self, path: str, order: dict[str, Any], key: str) -> dict[str, Any]:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(order).encode(), headers)
        with urllib.request.urlopen(request, timeout=HELD_AT_MOST) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _ask(self, path: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


@contextmanager
def payment_server(*, idempotent: bool) -> Iterator[Bank]:
    """The provider in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "tests.payment_server", *(["--idempotent"] if idempotent else [])]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Bank(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.kill()
        process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--idempotent", action="store_true")
    Desk.books = Books(idempotent=parser.parse_args().idempotent)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
