"""One connection to a NATS server, without the client's own reconnecting: what was under way when it broke is unknown,
and the client would send it again by itself, behind what came later."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from ...errors import AccessRefused, BrokerUnavailable, PillarboxError
from .url import NatsUrl

log = logging.getLogger("pillarbox.nats")

FAREWELL_SECONDS: Final = 1.0
PING_SECONDS: Final = 10
"""An idle connection whose peer is gone is noticed after two pings without an answer."""

FAILURES: Final = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""What the client raises when a server is away, or does not want us."""


class Connection(Client):
    """``ended`` is set when it is of no more use. ``violations`` counts what the server's permissions forbade."""

    def __init__(self, url: NatsUrl, on_violation: Callable[[str], None] = lambda text: None) -> None:
        super().__init__()
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        self.violations: list[str] = []
        self._url = url
        self._on_violation = on_violation

    async def open(self, number: int, name: str, seconds: float) -> None:
        """Connect to the server with this number; raises one of FAILURES."""
        url = self._url
        try:
            async with asyncio.timeout(seconds):
                await self.connect(
                    [url.address(number)],
                    name=name,
                    error_cb=self._on_error,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=seconds,  # type: ignore[arg-type]
                    ping_interval=PING_SECONDS,
                    user=url.user,
                    password=url.password,
                    token=url.token,
                    tls=url.tls,
                    tls_hostname=url.hosts[number % len(url.hosts)][0] if url.tls else None,
                )
        except nats.errors.NoServersError:
            self.abort()
            raise (self.failure or OSError("no answer")) from None  # it says only that there are no more to try
        except BaseException:
            self.abort()
            raise

    async def ask(self, subject: str, question: object, seconds: float) -> dict[str, Any]:
        """Ask JetStream's API. The answer may hold an ``error``.

        Raises AccessRefused (PB-008) where permissions forbid it, BrokerUnavailable (PB-005) without an answer.
        """
        seen = len(self.violations)
        body = json.dumps(question).encode() if question is not None else b""
        try:
            answer = await self.request(f"$JS.API.{subject}", body, timeout=seconds)
        except nats.errors.NoRespondersError as error:
            raise BrokerUnavailable(
                f"NATS at {self._url.shown} has no JetStream, or none that answers now.",
                fix="Start the server with JetStream (nats-server -js), and enable it for this account.",
            ) from error
        except FAILURES as error:
            if len(self.violations) > seen:
                raise AccessRefused(f"NATS at {self._url.shown}: {self.violations[-1]}.") from error
            raise BrokerUnavailable(
                f"NATS at {self._url.shown} did not answer {subject}: {reason_of(error)}."
            ) from error
        found: dict[str, Any] = json.loads(answer.data)
        return found

    async def farewell(self, seconds: float = FAREWELL_SECONDS) -> None:
        """Close in order when the server plays along, else cut the line."""
        with suppress(*FAILURES):
            async with asyncio.timeout(seconds):
                await self.close()
        self.abort()

    def abort(self) -> None:
        """Cut the line without waiting for anything."""
        self.ended.set()
        # The client has no public way to close without waiting for the peer.
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _on_error(self, error: Exception) -> None:
        if not self.is_connecting and "permissions violation" in str(error):
            self.violations.append(str(error).removeprefix("nats: "))
            self._on_violation(self.violations[-1])
        elif self.failure is None or not isinstance(error, nats.errors.NoServersError):
            self.failure = error
        log.debug("NATS at %s: %r", self._url.shown, error)

    # Two of the client's own methods, which have no public counterpart ------------------------------------------------

    def _connect_command(self) -> bytes:
        """It carries the password. The client goes on in plain text where the server offers no TLS."""
        if self._url.tls is not None and not self._server_info.get("tls_required"):
            raise nats.errors.SecureConnWantedError
        command: bytes = super()._connect_command()
        return command

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Its callbacks do not come where the line broke with something unsent."""
        self.ended.set()
        try:
            await super()._close(status, do_cbs)
        except OSError as error:
            log.debug("NATS at %s: closing: %r", self._url.shown, error)


async def connect(
    url: NatsUrl, name: str, *, first: int, seconds: float, on_violation: Callable[[str], None] = lambda text: None
) -> Connection:
    """Connect to the first server, from number ``first`` on, that answers within ``seconds`` each.

    Raises BrokerUnavailable (PB-005) or AccessRefused (PB-008) of the last one.
    """
    error: BaseException = OSError("no server")
    for number in range(first, first + len(url.hosts)):
        connection = Connection(url, on_violation)
        try:
            await connection.open(number, name, seconds)
            return connection
        except FAILURES as failed:
            error = failed
    raise explain(error, url) from error


def explain(error: BaseException, url: NatsUrl) -> PillarboxError:
    """Why no connection could be opened."""
    text = reason_of(error)
    if "authorization" in text.lower() or "authentication" in text.lower():
        return AccessRefused(f"NATS at {url.shown} refused user and password, or the token.")
    if isinstance(error, nats.errors.SecureConnWantedError):
        return BrokerUnavailable(
            f"NATS at {url.shown} offers no TLS, and the URL asks for it; no password was sent.",
            fix="Turn on TLS at the server, or leave tls, ca, cert and key out of the URL.",
        )
    if "certificate" in text.lower() or "ssl" in text.lower() or "tls" in text.lower():
        return BrokerUnavailable(
            f"NATS at {url.shown}: the TLS handshake failed: {text}.",
            fix="Name the authority that signed the server's certificate (ca=FILE), and write the host as it does.",
        )
    return BrokerUnavailable(f"NATS at {url.shown} does not answer: {text}.")


def reason_of(error: BaseException) -> str:
    """The error in one line."""
    text = str(error).strip().rstrip(".").removeprefix("nats: ")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
