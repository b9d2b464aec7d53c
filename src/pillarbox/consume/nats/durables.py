"""Which stream a source is in, and the consumers at the server: made where missing, looked at where they are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...errors import BadConsumer, BrokerUnavailable, SourceMissing
from ...publish.nats.connection import Connection
from ...publish.nats.url import NatsUrl
from .names import DEAD_STREAM, DEAD_SUBJECTS, RETRY_STREAM, RETRY_SUBJECTS, durable_of, retry_subject

_NO_STREAM: Final = 10059
_NO_CONSUMER: Final = 10014
_STREAM_IS_THERE: Final = 10058
_NS: Final = 1_000_000_000


class Durable(NamedTuple):
    """A consumer at the server, as it is, for one source: of its events, or of its retries. ``ack_wait`` in seconds."""

    stream: str
    name: str
    source: str
    ack_wait: float

    @property
    def retries(self) -> bool:
        """True for the one that reads what waits to come again."""
        return self.stream == RETRY_STREAM


class Server:
    """JetStream's API, asked over one connection; ``seconds`` bounds each question."""

    def __init__(self, connection: Connection, url: NatsUrl, seconds: float) -> None:
        self._connection = connection
        self._url = url
        self._seconds = seconds

    async def stream_of(self, source: str) -> str:
        """The one stream that has the source's subject; SourceMissing (PB-042) when there is none."""
        if self._url.stream is not None:
            found = await self._connection.ask(f"STREAM.INFO.{self._url.stream}", None, self._seconds)
            if _number(found) == _NO_STREAM:
                raise self._missing(f"no stream {self._url.stream!r}, which is to have {source!r}")
            self._check(found, f"The stream {self._url.stream!r}")
            return self._url.stream
        found = await self._connection.ask("STREAM.NAMES", {"subject": source}, self._seconds)
        self._check(found, "The list of streams")
        streams = found.get("streams") or []
        if not streams:
            raise self._missing(f"no stream with the subject {source!r}")
        if len(streams) > 1:
            raise BadConsumer(
                f"The subject {source!r} is spread over the streams {', '.join(streams)}.",
                fix="Name one in the broker's URL: ?stream=NAME, or give narrower sources.",
            )
        return str(streams[0])

    async def replicas_of(self, stream: str) -> int:
        """How many copies a stream has."""
        found = await self._connection.ask(f"STREAM.INFO.{stream}", None, self._seconds)
        self._check(found, f"The stream {stream!r}")
        return int(found["config"].get("num_replicas", 1))

    async def side_streams(self, replicas: int) -> None:
        """Make sure that the streams for dead letters and retries are there; existing ones stay as they are."""
        for name, subjects, retention in (
            (DEAD_STREAM, DEAD_SUBJECTS, "limits"),
            (RETRY_STREAM, RETRY_SUBJECTS, "workqueue"),
        ):
            found = await self._connection.ask(f"STREAM.INFO.{name}", None, self._seconds)
            if _number(found) != _NO_STREAM:
                self._check(found, f"The stream {name!r}")
                continue
            wanted = {
                "name": name,
                "subjects": [subjects],
                "retention": retention,
                "storage": "file",
                "num_replicas": replicas,
                "discard": "new",  # a full stream refuses; by default it would drop the oldest letters
                "max_consumers": -1,
                "max_msgs": -1,
                "max_bytes": -1,
            }
            made = await self._connection.ask(f"STREAM.CREATE.{name}", wanted, self._seconds)
            if _number(made) != _STREAM_IS_THERE:  # another process was quicker, with other replicas
                self._check(made, f"The stream {name!r} cannot be made: it")

    async def durable(self, stream: str, consumer: str, source: str, wanted: Mapping[str, Any]) -> Durable:
        """The consumer at the server for a source, made with ``wanted`` where there is none. BadConsumer (PB-041) names
        what is wrong with one that is there."""
        name = durable_of(consumer, source)
        subject = retry_subject(source, consumer) if stream == RETRY_STREAM else source
        found = await self._connection.ask(f"CONSUMER.INFO.{stream}.{name}", None, self._seconds)
        if _number(found) == _NO_CONSUMER:
            config = {**wanted, "filter_subject": subject, "durable_name": name, "name": name}
            question = {"stream_name": stream, "config": config}
            found = await self._connection.ask(f"CONSUMER.CREATE.{stream}.{name}.{subject}", question, self._seconds)
        self._check(found, f"The consumer {name!r} of the stream {stream!r}")
        _check_durable(stream, name, subject, found["config"])
        return Durable(stream, name, source, found["config"].get("ack_wait", 30 * _NS) / _NS)

    def _missing(self, what: str) -> SourceMissing:
        return SourceMissing(f"NATS at {self._url.shown} has {what}.", fix="Make the stream, or correct `sources`.")

    def _check(self, answer: Mapping[str, Any], what: str) -> None:
        error = answer.get("error")
        if error is None:
            return
        text = f"{what} was refused: {error.get('description')} ({error.get('err_code') or error.get('code')})."
        if int(error.get("code") or 0) in (400, 409):
            raise BadConsumer(text, fix="See docs/nats.md for what streams and consumers must be like.")
        raise BrokerUnavailable(text)


def _check_durable(stream: str, name: str, subject: str, config: Mapping[str, Any]) -> None:
    wrong = None
    if config.get("deliver_subject"):
        wrong = "it is a push consumer"
    elif config.get("ack_policy") != "explicit":
        wrong = f"its ack policy is {config.get('ack_policy')}, not explicit"
    elif int(config.get("max_deliver") or -1) > 0:
        wrong = f"after {config['max_deliver']} deliveries the server gives a message up without a word (max_deliver)"
    elif (found := config.get("filter_subject") or config.get("filter_subjects")) != subject:
        wrong = f"it reads {found or 'all subjects'}, not {subject!r}"
    if wrong is not None:
        raise BadConsumer(
            f"The consumer {name!r} of the stream {stream!r} was made by somebody else, and {wrong}.",
            fix="Delete it (nats consumer rm) and let this one make it, or give the consumer another name.",
        )


def _number(answer: Mapping[str, Any]) -> int:
    return int((answer.get("error") or {}).get("err_code") or 0)
