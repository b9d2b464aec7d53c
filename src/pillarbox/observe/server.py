"""A small HTTP server for probes and scrapers: /health, /ready, /metrics. Nothing else, and no thread without bound."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final, NamedTuple

from ..errors import CannotListen, ConfigError
from .exposition import Source, Text, make_text
from .snapshot import Snapshot

log = logging.getLogger("pillarbox.observe")

DEADLINE: Final = 5.0
"""Seconds in which a request must be read and answered, from when its turn comes; then its connection is cut."""

WORKERS: Final = 4
MOST: Final = 32
"""Connections at a time; more are cut at once."""


class Answer(NamedTuple):
    """Status, content type, body."""

    status: int
    content_type: str
    body: bytes


class Address(NamedTuple):
    """Where to listen. Port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, given: str) -> Address:
        """``127.0.0.1:9464``, ``[::1]:9464``, ``:9464`` (every address). ConfigError (PB-001) for anything else.

        >>> Address.parse("127.0.0.1:9464")
        Address(host='127.0.0.1', port=9464)
        """
        host, colon, port = given.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (
            not colon
            or not (port.isascii() and port.isdecimal())
            or int(port) > 65_535
            or (":" in host and bare == host)
        ):
            raise ConfigError(f"{given!r} is no address to listen on.", fix="Write host:port, as in 127.0.0.1:9464.")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@contextmanager
def serving(address: Address, source: Source) -> Iterator[Address]:
    """Answer on ``address`` for the length of the block; gives the address with its true port.

    Raises CannotListen (PB-080), and MissingDriver (PB-003) without prometheus_client.
    """
    pages = _pages(source, make_text(source))
    try:
        server = _Server(address, pages)
    except OSError as error:  # also what name resolution raises
        raise CannotListen(f"{address} cannot be listened on: {error.strerror or error}.") from error
    thread = threading.Thread(target=server.serve_forever, args=(0.5,), name="pillarbox-http", daemon=True)
    thread.start()
    bound = Address(address.host, server.server_address[1])
    log.info("health, readiness and metrics on http://%s/health, /ready, /metrics", bound)
    try:
        yield bound
    finally:
        server.end()
        thread.join(DEADLINE)


# Pages ------------------------------------------------------------------------------------------------------------


Page = Callable[[str], Answer]


def _pages(source: Source, text: Text) -> dict[str, Page]:
    def metrics(accept: str) -> Answer:
        body, content_type = text(accept)
        return Answer(200, content_type, body)

    return {
        "/health": lambda _accept: _verdict(source.snapshots(), lambda one: one.health.live),
        "/ready": lambda _accept: _verdict(source.snapshots(), lambda one: one.health.ready),
        "/metrics": metrics,
    }


def _verdict(snapshots: Sequence[Snapshot], is_well: Callable[[Snapshot], bool]) -> Answer:
    """200 when it holds of every relay, else 503; the body says why."""
    well = bool(snapshots) and all(map(is_well, snapshots))
    relays = [
        {"relay": s.relay, "outbox": s.outbox, "process": s.process, **s.health._asdict(), "restarts": s.restarts}
        for s in snapshots
    ]
    body = json.dumps({"ok": well, "relays": relays}, default=str) + "\n"
    return Answer(200 if well else 503, "application/json; charset=utf-8", body.encode())


# Serving ----------------------------------------------------------------------------------------------------------


class _Server(HTTPServer):
    request_queue_size = MOST

    def __init__(self, address: Address, pages: dict[str, Page]) -> None:
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        self.pages = pages
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float | None] = {}  # since when it is served, None while it waits
        super().__init__((address.host, address.port), _Handler)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="pillarbox-http")

    def server_bind(self) -> None:
        super(
            HTTPServer, self
        ).server_bind()  # HTTPServer would ask the name service for its own name, without deadline

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) < MOST:
                self._open[request] = None
                self._workers.submit(self._serve, request, client_address)
                return
        self.shutdown_request(request)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        with self._lock:
            self._open[request] = time.monotonic()
        try:
            self.finish_request(request, client_address)
        except OSError as error:  # the client went away, or its time was up
            log.debug("a request on %s was not answered: %s", client_address, error)
        except Exception:
            log.exception("a request failed")
        finally:
            with self._lock:
                self._open.pop(request, None)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: cut what is older than the deadline, however busily it trickles."""
        with self._lock:
            now = time.monotonic()
            late = [one for one, since in self._open.items() if since is not None and now - since > DEADLINE]
        for request in late:
            _cut(request)

    def end(self) -> None:
        """Stop listening and cut what is open."""
        self.shutdown()
        self.server_close()
        with self._lock:
            still = list(self._open)
        for request in still:
            _cut(request)
        self._workers.shutdown(wait=False, cancel_futures=True)


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it ended by itself meanwhile
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = DEADLINE
    server_version = "pillarbox"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        known = ", ".join(self.server.pages)
        missing = Answer(404, "text/plain; charset=utf-8", f"There are {known}.\n".encode())
        answer = page(self.headers.get("Accept") or "") if page else missing
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, template: str, *values: Any) -> None:
        """Probes come every few seconds: not worth a line at any level but debug."""
        log.debug(template, *values)
