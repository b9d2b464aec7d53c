"""Dead letters in the stream that all consumers at a NATS server share, each with subjects of its own."""

from __future__ import annotations

import base64
from collections.abc import Coroutine, Iterator
from typing import Any, NamedTuple, TypeVar

from ...errors import BrokerUnavailable, SourceMissing
from ...event.message import KEY
from ...publish.nats.connection import Connection, connect
from ...publish.nats.headers import parse, read
from ...publish.nats.loop import LoopThread
from ...publish.nats.url import NatsUrl, parse_nats_url
from ..dead import without_dead_headers
from ..nats.names import DEAD_STREAM, RETRY_STREAM, dead_subject, durable_of, retry_subject
from ..nats.sidestreams import put
from .copies import headers_again
from .letters import Letter, Order

T = TypeVar("T")


class _Handle(NamedTuple):
    sequence: int
    body: bytes


class NatsBox:
    """The subject ``pillarbox.dead.<consumer>.<source>``. A letter's place is its sequence in the stream; when it is
    replayed, it is deleted there."""

    def __init__(self, url: NatsUrl, consumer: str, source: str, *, deadline: float) -> None:
        self._url = url
        self._consumer = consumer
        self._source = source
        self._dead = dead_subject(source, consumer)
        self._retry = retry_subject(source, consumer)
        self._deadline = deadline
        self._loop = LoopThread(f"pillarbox-nats-dead-letters-{consumer}")
        self._connection: Connection | None = None

    @classmethod
    def from_url(cls, url: str, consumer: str, source: str, *, deadline: float = 10.0) -> NatsBox:
        """Make one from ``nats://host:port``."""
        return cls(parse_nats_url(url), consumer, source, deadline=deadline)

    def open(self) -> None:
        """Connect. SourceMissing (PB-042) when there was no consumer of this name."""
        name = f"pillarbox dead-letters {self._consumer}"
        seconds = self._deadline / (2 * len(self._url.hosts))
        self._connection = self._ask(connect(self._url, name, first=0, seconds=seconds))
        found = self._api(f"CONSUMER.INFO.{RETRY_STREAM}.{durable_of(self._consumer, self._source)}", None)
        if "error" in found:
            raise SourceMissing(
                f"NATS at {self._url.shown} has no dead letters of a consumer {self._consumer!r} of {self._source!r}.",
                fix="Check the names of consumer and source; the consumer makes their places when it starts.",
            )

    def letters(self) -> Iterator[Letter]:
        """Those that are in the stream now, the oldest first."""
        last = int(self._api(f"STREAM.INFO.{DEAD_STREAM}", None)["state"]["last_seq"])
        after = 0
        while after < last:
            question = {"seq": after + 1, "next_by_subj": self._dead}
            found = self._api(f"STREAM.MSG.GET.{DEAD_STREAM}", question, missing=True).get("message")
            if found is None or found["seq"] > last:
                return
            after = int(found["seq"])
            headers = read(parse(base64.b64decode(found.get("hdrs") or "")))
            body = base64.b64decode(found.get("data") or "")
            yield Letter(str(after), headers.get(KEY), headers, len(body), _Handle(after, body))

    def send(self, letter: Letter, order: Order) -> None:
        """Publish a copy to the consumer's retry subject and wait for the stream."""
        handle = _handle(letter)
        kept, again = without_dead_headers(letter.headers), dict(headers_again(letter, order))
        work = put(self._open(), self._retry, handle.body, kept, again, msg_id=None, seconds=self._deadline / 2)
        self._ask(work)

    def remove(self, letter: Letter, order: Order) -> None:
        """Delete it. Who wanted it, and why, is in the log and in the copy's ``retryReason``."""
        self._api(f"STREAM.MSG.DELETE.{DEAD_STREAM}", {"seq": _handle(letter).sequence, "no_erase": True})

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        self._loop.stop(connection.farewell() if connection is not None else None)

    def _api(self, subject: str, question: object, *, missing: bool = False) -> dict[str, Any]:
        """The answer; with ``missing``, also one that says that there is no such message."""
        found = self._ask(self._open().ask(subject, question, self._deadline / 2))
        error = found.get("error")
        if error is not None and not subject.startswith("CONSUMER.INFO") and not (missing and error["code"] == 404):
            raise BrokerUnavailable(f"NATS at {self._url.shown} refused {subject}: {error.get('description')}.")
        return found

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.ask(work, self._deadline)
        except TimeoutError as error:
            raise BrokerUnavailable(f"NATS at {self._url.shown} did not answer in time.") from error

    def _open(self) -> Connection:
        if self._connection is None:
            raise BrokerUnavailable("The dead letters are closed.")
        return self._connection


def _handle(letter: Letter) -> _Handle:
    assert isinstance(letter.handle, _Handle)
    return letter.handle
