"""The confluent-kafka clients of one publisher: made when needed, thrown away when broken."""

from __future__ import annotations

import logging
import time
from typing import Final, Literal

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ...errors import AccessRefused, BadUrl, BrokerUnavailable, PillarboxError
from .priming import Primed
from .url import KafkaUrl, alone, ordered

log = logging.getLogger("pillarbox.publish.kafka")

_AUTHENTICATION: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})


Kind = Literal["batch", "alone", "ordered"]
"""A producer that batches, one that sends each message by itself, and one that leaves no gap in a partition."""

_SLICE: Final = 0.1
"""Seconds. In a longer flush the binding goes on serving reports after a fatal error, and loses them."""


class FrailProducer(Producer):
    """Remembers what it broke of: the binding says it once, and later only that it is broken."""

    fatal = ""


class Client:
    """The producers, each made when it is first needed, and an admin client for questions."""

    def __init__(self, url: KafkaUrl) -> None:
        self._url = url
        self._producers: dict[Kind, Producer] = {}
        self._admin: AdminClient | None = None
        self._batch_size = url.batch_size
        self.primed = Primed(by_murmur2=str(url.config["partitioner"]).startswith("murmur2"))
        self._errors: dict[int, str] = {}  # what the client said since the last successful look, by code
        self._told: set[int] = set()
        self.broke = ""  # why the last producer that was discarded had broken, if it had, since the last such look

    @property
    def queue_bytes(self) -> int:
        """What a producer queues, at most; a larger message goes by the one that sends each alone."""
        return self._url.queue_bytes

    def producer(self, kind: Kind = "batch") -> Producer:
        """The living producer; BadUrl (PB-002) when an option of the URL is not known to the client."""
        if kind not in self._producers:
            try:
                self._producers[kind] = self._make(kind)
            except KafkaException as error:
                text = error.args[0].str()
                raise BadUrl(
                    f"{self._url.shown}: {text}.", fix="Correct the option in the URL; options are those of librdkafka."
                ) from error
        return self._producers[kind]

    def _make(self, kind: Kind) -> Producer:
        if kind == "batch":
            return FrailProducer({**self._url.config, "error_cb": self._on_error}, logger=log)
        if kind == "alone":
            return FrailProducer({**alone(self._url), "error_cb": self._on_error}, logger=log)
        # Whatever refuses a message is fatal to this producer, and no news: the reports tell it.
        silent = logging.Logger("pillarbox.publish.kafka.ordered", logging.CRITICAL + 1)
        return FrailProducer({**ordered(self._url, self._batch_size), "error_cb": self._on_error}, logger=silent)

    def make_batches_smaller(self) -> bool:
        """For the ordered producer, which must be discarded; False when a batch is one message already."""
        before, self._batch_size = self._batch_size, max(1, self._batch_size // 8)
        return before > 1

    def admin(self) -> AdminClient:
        """A client for questions about configuration."""
        if self._admin is None:
            self._admin = self.new_admin()
        return self._admin

    def new_admin(self) -> AdminClient:
        """One that its caller drops after use."""
        return AdminClient(self._url.config, logger=log)

    def connect(self, seconds: float) -> None:
        """Wait until a broker has answered, or raise what is wrong."""
        producer = self.producer()
        until = time.monotonic() + seconds
        while True:
            try:
                producer.list_topics(timeout=min(1.0, seconds))
                self._errors.clear()
                return
            except KafkaException as error:
                producer.poll(0)
                if time.monotonic() > until or self._errors.keys() & _AUTHENTICATION:
                    raise self._explain(error) from error

    def had_trouble(self) -> bool:
        """Serve what the client had to say since the last call: True when brokers were lost or it broke for good."""
        self._listen()
        trouble = bool(self._errors)
        self._told = set(self._errors)  # the log says it once, not at every probe of a long outage
        self._errors.clear()
        self.broke = ""
        return trouble

    @property
    def is_troubled(self) -> bool:
        """True when the client had something to say since the last :meth:`had_trouble`. Serves nothing."""
        return bool(self._errors)

    @property
    def all_down(self) -> bool:
        """True when the client found no broker to connect to since the last :meth:`had_trouble`."""
        return KafkaError._ALL_BROKERS_DOWN in self._errors

    def discard(self, kind: Kind) -> None:
        """Throw the producer away; the next use makes another. Nothing may be in flight."""
        thrown = self._producers.pop(kind, None)
        self.broke = getattr(thrown, "fatal", "") or self.broke
        if kind == "ordered":
            self.primed.forget()

    def close(self) -> None:
        """Throw everything away, and what is under way with it: the ordered producer would try for ever."""
        for producer in list(self._producers.values()):
            producer.purge()
        self._producers.clear()
        self._admin = None

    def reason(self, error: KafkaException) -> str:
        """Why a broker did not answer: what the client said in the background tells more than the error itself."""
        self._listen()
        told = [text for code, text in self._errors.items() if code != KafkaError._ALL_BROKERS_DOWN]
        return told[-1] if told else str(error.args[0].str())

    def _listen(self) -> None:
        for kind, producer in list(self._producers.items()):
            try:
                producer.poll(0)
            except KafkaException as error:  # a fatal one: the binding raises it instead of calling back
                log.warning("Kafka at %s: %s", self._url.shown, error.args[0].str())
                self.discard(kind)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() not in self._errors and error.code() not in self._told:
            log.warning("Kafka at %s: %s", self._url.shown, error.str())
        self._errors[error.code()] = error.str()

    def _explain(self, error: KafkaException) -> PillarboxError:
        reason = self.reason(error)
        if self._errors.keys() & _AUTHENTICATION:
            return AccessRefused(f"Kafka at {self._url.shown} refused the user name or password: {reason}.")
        # A peer that hangs up, or refuses the client's certificate after the handshake (TLS 1.3), is no _SSL.
        if KafkaError._SSL in self._errors or "SSL" in reason:
            return BrokerUnavailable(
                f"Kafka at {self._url.shown}: the TLS handshake failed: {reason}.",
                fix="Check security.protocol, ssl.ca.location and the certificates in the URL's options.",
            )
        return BrokerUnavailable(f"Kafka at {self._url.shown} does not answer: {reason}.")


def serve(producer: Producer, seconds: float) -> tuple[int, bool]:
    """Send what waits and take reports for up to ``seconds``: how many messages are left, and whether it broke."""
    try:
        return producer.flush(min(_SLICE, seconds)), False
    except KafkaException as error:  # fatal; each message's own report says what it means
        if isinstance(producer, FrailProducer):
            producer.fatal = error.args[0].str()
        return len(producer), True
