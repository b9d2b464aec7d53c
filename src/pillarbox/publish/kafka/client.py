"""The confluent-kafka clients of one publisher: made when needed, thrown away when broken."""

from __future__ import annotations

import logging
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ...errors import AccessRefused, BadUrl, BrokerUnavailable, PillarboxError
from .url import KafkaUrl

log = logging.getLogger("pillarbox.publish.kafka")

_AUTHENTICATION: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})


class Client:
    """Two producers: one that batches, and one that sends each message alone; and an admin client for questions."""

    def __init__(self, url: KafkaUrl) -> None:
        self._url = url
        self._producers: dict[bool, Producer] = {}
        self._admin: AdminClient | None = None
        self._errors: dict[int, str] = {}  # what the client said since the last successful look, by code
        self._told: set[int] = set()
        self._fatal = False

    def producer(self, *, alone: bool = False) -> Producer:
        """The living producer; BadUrl (PB-002) when an option of the URL is not known to the client."""
        if alone not in self._producers:
            extra = {"batch.num.messages": 1} if alone else {}
            try:
                self._producers[alone] = Producer({**self._url.config, **extra, "error_cb": self._on_error}, logger=log)
            except KafkaException as error:
                text = error.args[0].str()
                raise BadUrl(
                    f"{self._url.shown}: {text}.", fix="Correct the option in the URL; options are those of librdkafka."
                ) from error
        return self._producers[alone]

    def admin(self) -> AdminClient:
        """A client for questions about configuration."""
        if self._admin is None:
            self._admin = AdminClient(self._url.config, logger=log)
        return self._admin

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
        for producer in list(self._producers.values()):
            producer.poll(0)
        if self._fatal:
            self._fatal = False
            self.discard(alone=False)
            self.discard(alone=True)
        trouble = bool(self._errors)
        self._told = set(self._errors)  # the log says it once, not at every probe of a long outage
        self._errors.clear()
        return trouble

    @property
    def all_down(self) -> bool:
        """True when the client found no broker to connect to since the last :meth:`had_trouble`."""
        return KafkaError._ALL_BROKERS_DOWN in self._errors

    def discard(self, *, alone: bool) -> None:
        """Throw the producer away; the next use makes another. Nothing may be in flight."""
        self._producers.pop(alone, None)

    def close(self) -> None:
        """Throw everything away."""
        self._producers.clear()
        self._admin = None

    def reason(self, error: KafkaException) -> str:
        """Why a broker did not answer: what the client said in the background tells more than the error itself."""
        for producer in list(self._producers.values()):
            producer.poll(0)
        told = [text for code, text in self._errors.items() if code != KafkaError._ALL_BROKERS_DOWN]
        return told[-1] if told else str(error.args[0].str())

    def _on_error(self, error: KafkaError) -> None:
        self._fatal = self._fatal or error.fatal()
        if error.code() not in self._errors and error.code() not in self._told:
            log.warning("Kafka at %s: %s", self._url.shown, error.str())
        self._errors[error.code()] = error.str()

    def _explain(self, error: KafkaException) -> PillarboxError:
        reason = self.reason(error)
        if self._errors.keys() & _AUTHENTICATION:
            return AccessRefused(f"Kafka at {self._url.shown} refused the user name or password: {reason}.")
        if KafkaError._SSL in self._errors or "SSL handshake" in reason:  # a peer that hangs up is no _SSL
            return BrokerUnavailable(
                f"Kafka at {self._url.shown}: the TLS handshake failed: {reason}.",
                fix="Check security.protocol, ssl.ca.location and the certificates in the URL's options.",
            )
        return BrokerUnavailable(f"Kafka at {self._url.shown} does not answer: {reason}.")
