"""``kafka://`` URLs as the client's configuration."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...errors import BadUrl
from ...event.cloudevents import is_source
from ..broker_url import parse_broker_url

EXAMPLE: Final = "kafka://host1:9092,host2:9092?security.protocol=SSL"

CLOUDEVENTS: Final = "cloudevents.source"

_NOT_YOURS: Final = {
    "acks": "every message waits for all in-sync replicas",
    "request.required.acks": "every message waits for all in-sync replicas",
    "enable.idempotence": "it is always on: without it the client's own retries repeat and reorder messages",
    "bootstrap.servers": "the URL's hosts say it",
    "metadata.broker.list": "the URL's hosts say it",
    "transactional.id": "this publisher uses no transactions",
}


class KafkaUrl(NamedTuple):
    """The client's configuration, and the URL without password and options for messages."""

    config: dict[str, str | int | float]
    shown: str
    cloudevents: str | None = None  # the source of the CloudEvents to be sent; None: plain headers

    @property
    def batch_size(self) -> int:
        """Bytes of a batch, at most; a single larger message is a batch of its own."""
        return int(self.config.get("batch.size", 1_000_000))

    @property
    def queue_bytes(self) -> int:
        """Bytes that wait in a producer, at most."""
        return int(self.config["queue.buffering.max.kbytes"]) * 1024


def parse_kafka_url(url: str, *, deadline: float) -> KafkaUrl:
    """Read ``kafka://host:port,host:port?option=value``; options are those of librdkafka.

    ``user:password@`` means SASL: PLAIN over TLS unless ``sasl.mechanism`` and ``security.protocol`` say otherwise.
    ``cloudevents.source=/shop`` is ours: headers are those of CloudEvents in binary mode, with this source.
    """
    parts = parse_broker_url(url, example=EXAMPLE, default_port=9092)
    if parts.path:
        raise BadUrl(f"{parts.shown} has a path; a Kafka URL names brokers only.", fix=f"Write it as e.g. {EXAMPLE}.")
    for name in parts.options:
        if name in _NOT_YOURS:
            raise BadUrl(f"{parts.shown} sets {name}: {_NOT_YOURS[name]}.", fix=f"Leave {name} out.")
    options = {name: value for name, value in parts.options.items() if name != CLOUDEVENTS}
    source = parts.options.get(CLOUDEVENTS)
    if source is not None and not is_source(source):
        raise BadUrl(
            f"{parts.shown} sets {CLOUDEVENTS}={source!r}, which is no URI reference.",
            fix=f"Name what the events come from, e.g. {CLOUDEVENTS}=/shop or {CLOUDEVENTS}=urn:example:shop.",
        )
    config: dict[str, str | int | float] = {
        "bootstrap.servers": ",".join(f"{_bracketed(host)}:{port}" for host, port in parts.hosts),
        "client.id": "pillarbox",
        "acks": "all",
        "enable.idempotence": True,
        # Java's and Debezium's choice of partition; librdkafka's own default would put a key on another one.
        "partitioner": "murmur2_random",
        # A batch is flushed as soon as it is handed over, and a flush ends the linger: it delays nothing. It only keeps
        # a slow hand-over (busy machine, large batch) from being cut into many small requests, a third more time.
        "linger.ms": 50,
        # A frozen broker holds up what was sent to it until this is over, then the next attempt goes elsewhere.
        "socket.timeout.ms": 6_000,
        "request.timeout.ms": 5_000,
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 250,
        "reconnect.backoff.max.ms": 1_000,
        "log_level": 2,  # what matters arrives at the error callback, once and not at every reconnection
        # The publisher's own deadline purges what is left, and then knows what was in flight; this is the backstop.
        "message.timeout.ms": int(deadline * 1_000) + 1_000,
        # The broker is the judge of what is too large, topic by topic.
        "message.max.bytes": 1_000_000_000,
        # The client copies what it is handed. A full queue is back-pressure; a larger message is sent alone.
        "queue.buffering.max.kbytes": 65_536,
    }
    if parts.user is not None:
        config |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": parts.user,
            "sasl.password": parts.password or "",
        }
    return KafkaUrl({**config, **options}, parts.shown, source)


def alone(url: KafkaUrl) -> dict[str, str | int | float]:
    """For a producer that sends each message in a batch of its own, however large."""
    return {**url.config, "batch.num.messages": 1, "queue.buffering.max.kbytes": 1_048_576}


def ordered(url: KafkaUrl, batch_size: int) -> dict[str, str | int | float]:
    """For a producer that leaves no gap: nothing is sent to a partition after a message that is not there.

    Raises BadUrl (PB-002) for a partitioner that scatters keys.
    """
    if url.config["partitioner"] == "random":
        raise BadUrl(
            f"{url.shown} sets partitioner=random, which scatters a key over partitions: there is no order then.",
            fix="Leave partitioner out, or choose one that goes by key.",
        )
    return {
        **{name: value for name, value in url.config.items() if name not in _OTHER_NAMES},
        "enable.gapless.guarantee": True,
        # The guarantee does not cover messages that expire in the client: ours is the only deadline.
        "message.timeout.ms": 0,
        "retries": 2_147_483_647,
        # A broker that has not yet heard of this producer takes any first sequence number: with two requests under
        # way the second may be accepted although the first was refused. One at a time costs nothing that shows.
        "max.in.flight.requests.per.connection": 1,
        "batch.size": batch_size,
    }


_OTHER_NAMES: Final = frozenset({"delivery.timeout.ms", "message.send.max.retries", "max.in.flight"})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
