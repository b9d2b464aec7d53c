"""TLS, SASL and access control on a real broker: settings go through, and a refusal says what to correct."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.errors import AccessRefused, BrokerUnavailable
from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed, Outcome, Rejected, Unavailable, Unknown, Withheld
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message, messages
from tests.certificates import Authority
from tests.kafka_broker import KafkaBroker
from tests.servers import unique

pytestmark = pytest.mark.services


@pytest.fixture
def broker(lone_kafka: KafkaBroker) -> KafkaBroker:
    return lone_kafka


# TLS ----------------------------------------------------------------------------------------------------------------


def test_events_go_over_TLS_to_a_broker_whose_authority_is_trusted(broker: KafkaBroker) -> None:
    publish_one(broker, tls(broker.tls_address, broker.authority.ca))


def test_PB_005_a_certificate_of_an_unknown_authority_is_refused_in_plain_words(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other").ca
    refused_by_tls(tls(broker.tls_address, other), "certificate verify failed")
    refused_by_tls(f"kafka://{broker.tls_address}?security.protocol=SSL", "certificate verify failed")


def test_PB_005_a_certificate_for_another_name_is_refused_unless_told_otherwise(broker: KafkaBroker) -> None:
    address = broker.tls_address.replace("localhost", "127.0.0.1")
    url = tls(address, broker.authority.ca)
    refused_by_tls(url, "certificate verify failed")
    with closing(open_publisher(f"{url}&ssl.endpoint.identification.algorithm=none", deadline=10)):
        pass


def test_PB_005_a_broker_that_asks_for_a_certificate_wants_one_it_trusts(broker: KafkaBroker, tmp_path: Path) -> None:
    url = tls(broker.mutual_address, broker.authority.ca)
    refused_by_tls(url, "TLS")
    for authority in (Authority(tmp_path / "strange"), broker.authority):
        authority.issue("client", "shop")
    refused_by_tls(with_certificate(url, tmp_path / "strange"), "TLS")
    publish_one(broker, with_certificate(url, broker.authority.ca.parent))


# Passwords ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("over_tls", [True, False])
def test_PB_008_a_password_opens_and_a_wrong_one_is_refused_at_once(
    broker: KafkaBroker, mechanism: str, over_tls: bool
) -> None:
    address = broker.sasl_tls_address if over_tls else broker.sasl_address
    protocol = "SASL_SSL" if over_tls else "SASL_PLAINTEXT"
    trust = f"&ssl.ca.location={broker.authority.ca}" if over_tls else ""
    options = f"security.protocol={protocol}&sasl.mechanism={mechanism}{trust}"
    topic = broker.topic(unique("t"))
    broker.allow_alice(topic)
    with closing(open_publisher(f"kafka://alice:wonderland@{address}?{options}", deadline=10)) as publisher:
        assert kinds(publisher.publish([message(Topic(topic))])) == [Confirmed]
    started = time.monotonic()
    with pytest.raises(AccessRefused) as caught:
        open_publisher(f"kafka://alice:s3cret@{address}?{options}", deadline=10)
    assert time.monotonic() - started < 4
    assert "s3cret" not in str(caught.value)


# Rights -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["publish", "publish_in_order"])
def test_a_topic_that_may_be_seen_but_not_written_is_refused_for_good(broker: KafkaBroker, call: str) -> None:
    """The broker says so only to the record itself: the metadata shows the topic."""
    mine, secret = Topic(broker.topic(unique("t"))), Topic(broker.topic(unique("t")))
    broker.allow_alice(mine.name)
    broker.allow_alice(secret.name, write=False)
    sent = [message(mine), message(secret), message(mine), message(secret)]
    with closing(open_publisher(alice(broker), deadline=10)) as publisher:
        outcomes = getattr(publisher, call)(sent)
    assert kinds(outcomes[::2]) == [Confirmed] * 2
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].permanent
    assert "authoriz" in outcomes[1].reason.lower()
    assert isinstance(outcomes[3], Rejected if call == "publish" else Withheld)


@pytest.mark.parametrize("call", ["publish", "publish_in_order"])
def test_a_user_who_may_write_nowhere_gets_no_producer_and_one_as_soon_as_he_may(
    broker: KafkaBroker, call: str
) -> None:
    """A fatal error: the broker gives no producer id. The producer is thrown away, and the next one asks anew."""
    there = Topic(broker.topic(unique("t")))
    broker.allow_nothing()
    broker.allow_alice(there.name, write=False)
    with closing(open_publisher(alice(broker), deadline=5)) as publisher:
        publish: Callable[..., list[Outcome]] = getattr(publisher, call)
        for _ in range(3):  # the first one meets the error, or a producer that has met it already
            outcomes = publish(messages(there, 10, keys=1))
            assert set(kinds(outcomes[1:])) <= {Unavailable, Unknown, Withheld}
            assert isinstance(outcomes[0], (Unavailable, Unknown))
            assert "Cluster authorization failed" in outcomes[0].reason
            assert not getattr(outcomes[0], "destination_healthy", False), "nobody is charged"
        broker.allow_alice(there.name)
        deadline = time.monotonic() + 20
        while kinds(publish(messages(there, 10, keys=1))) != [Confirmed] * 10:
            assert time.monotonic() < deadline


# Helpers ------------------------------------------------------------------------------------------------------------


def tls(address: str, authority: Path) -> str:
    return f"kafka://{address}?security.protocol=SSL&ssl.ca.location={authority}"


def with_certificate(url: str, folder: Path) -> str:
    return f"{url}&ssl.certificate.location={folder / 'client.pem'}&ssl.key.location={folder / 'client.key'}"


def alice(broker: KafkaBroker) -> str:
    return f"kafka://alice:wonderland@{broker.sasl_address}?security.protocol=SASL_PLAINTEXT"


def publish_one(broker: KafkaBroker, url: str) -> None:
    there = Topic(broker.topic(unique("t")))
    with closing(open_publisher(url, deadline=10)) as publisher:
        assert kinds(publisher.publish([message(there)])) == [Confirmed]


def refused_by_tls(url: str, text: str) -> None:
    with pytest.raises(BrokerUnavailable) as caught:
        open_publisher(url, deadline=4)
    assert "TLS" in str(caught.value)
    assert text in str(caught.value)
    assert "ssl.ca.location" in str(caught.value)


def kinds(outcomes: list[Outcome]) -> list[type]:
    return [type(outcome) for outcome in outcomes]
