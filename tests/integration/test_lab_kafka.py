"""The lab's experiments with Kafka alone, and its proxies before a cluster's brokers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pillarbox.errors import ConfigError, LabError
from pillarbox.lab.kafka.cluster import Cluster, private_cluster
from pillarbox.lab.kafka.idempotence import RETRIED_IDEMPOTENT, RETRIED_PLAIN, SENT_AGAIN, retried, sent_again
from pillarbox.lab.kafka.replicas import early, late
from pillarbox.lab.kafka.running import run_trials
from pillarbox.lab.kafka.trial import Trial
from pillarbox.lab.kafka.via import Detour, KafkaVia, kafka_via, parse_via, why_not
from pillarbox.lab.ports import Address
from services.kafka import LIBRARIES
from services.maven import jars
from services.place import Place, locked
from tests.kafka_broker import KafkaBroker
from tests.servers import read_settings

EVENTS = 5


@pytest.fixture
def via(lone_kafka: KafkaBroker) -> Iterator[KafkaVia]:
    """The lone broker's own proxy, as the lab would open it."""
    detour = Detour(Address("127.0.0.1", lone_kafka.proxy.port), Address("127.0.0.1", lone_kafka.ports.plain))
    yield KafkaVia([detour], [lone_kafka.proxy])
    lone_kafka.proxy.heal()


# Idempotence --------------------------------------------------------------------------------------------------------


@pytest.mark.services
def test_a_retry_without_idempotence_doubles_every_record_whose_answer_was_lost(
    lone_kafka: KafkaBroker, via: KafkaVia
) -> None:
    found = retried(RETRIED_PLAIN, lone_kafka.direct, via, EVENTS)
    assert (found.acknowledged, found.doubled, found.records, found.gone) == (EVENTS, EVENTS, 2 * EVENTS, 0)
    assert found.as_expected
    # The client names the second copy: of the first one it never heard.
    assert all(one.places[1].endswith(f"@{one.told}") for one in found.events)


@pytest.mark.services
def test_an_idempotent_session_doubles_nothing_under_the_same_fault(lone_kafka: KafkaBroker, via: KafkaVia) -> None:
    found = retried(RETRIED_IDEMPOTENT, lone_kafka.direct, via, EVENTS)
    assert (found.acknowledged, found.doubled, found.records, found.gone) == (EVENTS, 0, EVENTS, 0)
    assert found.as_expected


@pytest.mark.services
def test_idempotence_ends_with_the_session_and_a_resend_doubles(lone_kafka: KafkaBroker, via: KafkaVia) -> None:
    found = sent_again(SENT_AGAIN, lone_kafka.direct, via, EVENTS)
    assert (found.acknowledged, found.doubled, found.records, found.gone) == (EVENTS, EVENTS, 2 * EVENTS, 0)
    assert found.as_expected
    assert "signal 9" in found.notes[0]


# Replicas -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with private_cluster(jars(Place.of_checkout(), "kafka-4.4.0", *LIBRARIES)) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.services
@pytest.mark.timeout(180)
def test_with_frozen_followers_acks_0_and_1_lose_what_they_acknowledged_and_all_does_not(cluster: Cluster) -> None:
    acks_0, acks_1, acks_all = early(cluster, EVENTS)
    for lost in (acks_0, acks_1):
        assert (lost.acknowledged, lost.gone, lost.records) == (EVENTS, EVENTS, 0)
    assert all(one.told is None for one in acks_0.events)
    assert all(one.told is not None for one in acks_1.events)
    assert (acks_all.acknowledged, acks_all.gone, acks_all.doubled) == (EVENTS, 0, 0)
    for one in (acks_0, acks_1, acks_all):
        assert one.as_expected, one
        assert [moment.in_sync for moment in one.sync] == [(1, 2, 3), (1, 2, 3), (2, 3), (1, 2, 3)]
    assert "0 acknowledged" in acks_all.notes[0]  # while the leader lived


@pytest.mark.long
@pytest.mark.services
@pytest.mark.timeout(180)
def test_a_leader_alone_in_sync_acknowledges_unless_two_are_asked_for(cluster: Cluster) -> None:
    alone, unclean, two = late(cluster, EVENTS)
    assert (alone.acknowledged, alone.gone) == (EVENTS, 0)
    assert (unclean.acknowledged, unclean.gone) == (EVENTS, EVENTS)
    assert (two.acknowledged, two.gone, two.records) == (0, 0, 0)
    for one in (alone, unclean, two):
        assert one.as_expected, one
        assert [moment.in_sync for moment in one.sync][:2] == [(1, 2, 3), (1,)]
    assert alone.sync[2].leader == -1  # nobody may lead without the only replica that has all
    assert unclean.sync[2].leader in (2, 3)


# Proxies before all brokers -----------------------------------------------------------------------------------------


@contextmanager
def shared_via() -> Iterator[str]:
    """The mapping of the shared cluster. The ports that its brokers advertise are fixed: one test at a time."""
    text = read_settings().get("PILLARBOX_TEST_KAFKA_VIA")
    if text is None or (reason := why_not(text)) is not None:
        pytest.skip(f"no listener for the lab's proxies: {'not set' if text is None else reason}")
    with locked(Path(__file__).parents[2] / ".services" / "kafka-via.lock"):
        yield text


@pytest.mark.services
def test_answers_of_all_brokers_of_the_shared_cluster_can_be_lost(kafka_url: str, make_topic: object) -> None:
    topic = make_topic(3)  # type: ignore[operator]
    with shared_via() as text, kafka_via(text) as via:
        lose_and_heal(via, topic, 3)


def lose_and_heal(via: KafkaVia, topic: str, partitions: int) -> None:
    """A record to each partition is stored and not acknowledged while answers are lost, and is once they are not."""
    reports: list[str | None] = []
    producer = Producer({"bootstrap.servers": via.bootstrap, "enable.idempotence": True, "reconnect.backoff.ms": 20})

    def send() -> None:
        for partition in range(partitions):
            producer.produce(
                topic, b"x", partition=partition, on_delivery=lambda error, _: reports.append(error and error.name())
            )

    send()
    assert producer.flush(10) == 0
    before = via.lost
    via.lose_answers()
    send()
    deadline = time.monotonic() + 10
    while via.lost == before:
        producer.poll(0.01)
        assert time.monotonic() < deadline
    assert len(reports) == partitions
    via.heal()
    assert producer.flush(10) == 0
    assert reports == [None] * (2 * partitions)


@pytest.mark.long
@pytest.mark.services
@pytest.mark.timeout(120)
def test_clients_stay_behind_the_proxies_of_a_whole_cluster(cluster: Cluster) -> None:
    from pillarbox.lab.kafka.topics import trial_topic

    with trial_topic(cluster.bootstrap, "via") as topic, kafka_via(cluster.via) as via:
        lose_and_heal(via, topic, 1)
        with pytest.raises(LabError, match="another lab"), kafka_via(cluster.via):
            pass


@pytest.mark.services
def test_a_broker_that_advertises_another_address_is_refused(lone_kafka: KafkaBroker) -> None:
    """A client would go past the proxy, and the fault would strike nobody."""
    free = lone_kafka.ports.controller + 7
    mapping = f"127.0.0.1:{free}=127.0.0.1:{lone_kafka.ports.direct}"
    with pytest.raises(LabError, match="none of the proxies"), kafka_via(mapping):
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no broker"),
        ("127.0.0.1:9292", "ADVERTISED=REAL"),
        ("127.0.0.1:9292=broker", "host:port"),
        ("127.0.0.1:0=broker:1", "host:port"),
        ("broker1:9292=broker1:9192", "listens on 127.0.0.1"),
        ("127.0.0.1:9292=a:1,localhost:9292=b:1", "twice"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_via(text)


# What is not run ----------------------------------------------------------------------------------------------------


def test_without_servers_every_experiment_says_what_is_expected_and_how_to_run_it() -> None:
    shown: list[Trial] = []
    trials = run_trials(show=shown.append)
    assert [one.id for one in trials] == [f"K{number}" for number in range(1, 10)]
    assert list(trials) == shown
    assert not any(one.ran for one in trials)
    assert all(one.as_expected is None and one.sentence.startswith("Expected, not run: ") for one in trials)
    assert "--kafka-via" in trials[0].sentence
    assert "--kafka-home" in trials[8].sentence


def test_a_listener_that_is_not_there_yet_is_a_reason_not_to_run() -> None:
    trials = run_trials("kafka://127.0.0.1:1", via="127.0.0.1:9=127.0.0.1:1")
    assert all("restarted with that listener" in one.sentence for one in trials[:3])


def test_a_folder_without_kafka_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no Kafka"), private_cluster(tmp_path):
        pass


def test_what_was_found_is_kept_and_shown(tmp_path: Path) -> None:
    from rich.console import Console

    from pillarbox.lab.kafka.showing import as_json, load_trials, save_trials, table
    from pillarbox.lab.kafka.trial import Sync, Told

    found = replace(
        RETRIED_IDEMPOTENT,
        events=(Told("a", True, 0, ("t[0]@0", "t[0]@1")),),
        sync=(Sync("before", 1, (1, 2, 3)),),
        notes=("a note",),
    )
    trials = (found, *run_trials())
    save_trials(tmp_path / "new", trials)
    assert load_trials(tmp_path / "new") == trials
    assert load_trials(tmp_path) == ()
    assert (as_json(found)["doubled"], as_json(found)["as_expected"]) == (1, False)
    console = Console(width=200, record=True, file=StringIO())
    console.print(table(trials))
    text = console.export_text()
    assert "before [1, 2, 3]" in text
    assert "NO" in text
    assert "--kafka-home" in text


def test_a_surprise_is_told_from_what_was_expected() -> None:
    from pillarbox.lab.kafka.trial import Told

    once, twice = Told("a", True, 0, ("t[0]@0",)), Told("b", True, 2, ("t[0]@1", "t[0]@2"))
    assert replace(RETRIED_IDEMPOTENT, events=(once,)).as_expected
    assert not replace(RETRIED_IDEMPOTENT, events=(once, twice)).as_expected
    assert not replace(RETRIED_PLAIN, events=(once, twice)).as_expected
    gone = replace(RETRIED_PLAIN, events=(Told("c", True, 3, ()), twice))
    assert (gone.acknowledged, gone.records, gone.doubled, gone.gone) == (2, 2, 1, 1)
    assert gone.sentence == "2 sent, 2 acknowledged, 2 records: 1 doubled, 1 acknowledged and gone."
