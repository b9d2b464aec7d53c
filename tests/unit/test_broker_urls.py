"""Broker URLs: what is understood, what is refused, and that passwords stay out of messages."""

import ssl
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.embedded import parse_embedded_url
from pillarbox.errors import BadUrl, MissingDriver
from pillarbox.publish.kafka.url import parse_kafka_url
from pillarbox.publish.rabbitmq.url import parse_rabbitmq_url
from pillarbox.publish.registry import PUBLISHERS, make_publisher, open_publisher, scheme_of


def test_PB_002_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(BadUrl) as caught:
        open_publisher("redis://localhost")
    for scheme in PUBLISHERS:
        assert scheme in str(caught.value)


@pytest.mark.parametrize("nonsense", ["", "s3cret", "no colon here", 5, None])
def test_PB_002_text_without_a_scheme_is_not_repeated(nonsense: str) -> None:
    with pytest.raises(BadUrl) as caught:
        scheme_of(nonsense)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "kafka:topic",
        "kafka://host:port",
        "kafka://host:0",
        "kafka://host:70000",
        "kafka://host/topic",
        "kafka://a,,b",
        "kafka://host?acks=1",
        "kafka://host?enable.idempotence=false",
        "kafka://host?bootstrap.servers=other",
        "amqp://",
        "amqp://u:s3cret@",
        "amqp://u:s3cret@host:x/",
        "amqp://u:s3#cret@host/",
        "amqp://u:s3cret/x@host/",
        "amqp://u:s3cret?x@host/",
        "kafka://[::1",
        "amqp://host/?heartbeat=0",
        "amqp://host/?heartbeat=soon",
        "amqp://host/?hartbeat=5",
        "amqps://host/?ca=/no/such/file",
        "amqps://host/?verify=perhaps",
        "embedded:",
        "embedded:///",
        "embedded://host/file",
        "embedded:///folder/",
        "embedded:file?partitions=0",
        "embedded:file?partitions=many",
        "embedded:file?colour=red",
    ],
)
def test_PB_002_a_bad_URL_says_how_it_is_written(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        make_publisher(url)
    assert caught.value.how_to_fix
    assert "s3cret" not in str(caught.value)


def test_a_missing_client_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """PB-003 for each broker, with the client's package hidden."""
    kafka, rabbitmq = ("kafka://h", "confluent_kafka", "kafka"), ("amqps://h", "pika", "rabbitmq")
    for url, client, extra in (kafka, rabbitmq, ("nats://h", "nats", "nats")):
        for name in [one for one in sys.modules if one.startswith("pillarbox.publish.") and extra in one]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, client, None)
        with pytest.raises(MissingDriver) as caught:
            make_publisher(url)
        assert f"pip install 'pillarbox[{extra}]'" in str(caught.value)


def test_the_registry_imports_no_client() -> None:
    clients = {"pika", "confluent_kafka", "nats"}
    code = f"import sys, pillarbox, pillarbox.publish.registry; print({clients} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_every_scheme_makes_a_publisher_that_says_so() -> None:
    urls = {
        "kafka": "kafka://h",
        "amqp": "amqp://h",
        "amqps": "amqps://h",
        "nats": "nats://h",
        "embedded": "embedded:x",
        "memory": "memory:",
    }
    assert urls.keys() == PUBLISHERS.keys()
    for scheme, url in urls.items():
        publisher = make_publisher(url)
        assert scheme.startswith(publisher.capabilities.scheme)
        publisher.close()


def test_a_kafka_URL_names_brokers_and_passes_options_on() -> None:
    config, shown, _ = parse_kafka_url("kafka://a:1,b,[::1]:9093?linger.ms=1&compression.type=lz4", deadline=20)
    assert config["bootstrap.servers"] == "a:1,b:9092,[::1]:9093"
    assert (config["linger.ms"], config["compression.type"]) == ("1", "lz4")
    assert (config["acks"], config["enable.idempotence"], config["partitioner"]) == ("all", True, "murmur2_random")
    assert shown == "kafka://a:1,b,[::1]:9093"


def test_kafka_credentials_go_over_TLS_unless_told_otherwise() -> None:
    config, shown, _ = parse_kafka_url("kafka://us%40er:p%2Fw@host", deadline=20)
    assert (config["sasl.username"], config["sasl.password"]) == ("us@er", "p/w")
    assert (config["security.protocol"], config["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert "p/w" not in shown
    assert "p%2Fw" not in shown
    plain, *_ = parse_kafka_url(
        "kafka://u:p@h?security.protocol=SASL_PLAINTEXT&sasl.mechanism=SCRAM-SHA-512", deadline=20
    )
    assert (plain["security.protocol"], plain["sasl.mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")


def test_an_amqp_URL_is_read_as_rabbitmq_does() -> None:
    nodes, shown, *_ = parse_rabbitmq_url("amqp://us%40er:p%2Fw@h1:1,h2/my%2Fhost?heartbeat=7", connect_timeout=3)
    first, second = nodes
    assert (first.host, first.port, second.host, second.port) == ("h1", 1, "h2", 5672)
    assert (first.virtual_host, first.heartbeat, first.socket_timeout) == ("my/host", 7, 3)
    assert (first.credentials.username, first.credentials.password) == ("us@er", "p/w")
    assert shown == "amqp://h1:1,h2/my%2Fhost"
    for url in ("amqp://h", "amqp://h/", "amqp://h/%2F"):
        (node,), *_ = parse_rabbitmq_url(url, connect_timeout=3)
        assert (node.virtual_host, node.credentials.username) == ("/", "guest")


def test_amqps_verifies_the_server_unless_told_otherwise() -> None:
    (checked,), *_ = parse_rabbitmq_url("amqps://h", connect_timeout=3)
    (unchecked,), *_ = parse_rabbitmq_url("amqps://h?verify=no", connect_timeout=3)
    assert checked.port == 5671
    assert checked.ssl_options.context.verify_mode == ssl.CERT_REQUIRED
    assert checked.ssl_options.context.check_hostname
    assert unchecked.ssl_options.context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("embedded:///var/lib/events.log", "/var/lib/events.log"),
        ("embedded:events.log", "events.log"),
        ("embedded:folder/my%20events.log", "folder/my events.log"),
        ("embedded:events#1.log", "events#1.log"),
        ("embedded:///C:/events.log", "C:/events.log"),
    ],
)
def test_an_embedded_URL_names_a_file(url: str, path: str) -> None:
    assert parse_embedded_url(url).path.as_posix() == path


@given(st.text(max_size=40))
def test_any_text_is_understood_or_refused_in_our_words(text: str) -> None:
    for scheme in ("kafka", "amqp", "embedded", ""):
        try:
            make_publisher(f"{scheme}:{text}").close()
            make_publisher(f"{scheme}://{text}").close()
        except BadUrl:
            pass
