"""What every broker under the lab must do: the same tests on the embedded log, Kafka and RabbitMQ."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pika
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pillarbox import Event
from pillarbox.consume.sources import make_source
from pillarbox.errors import BadUrl, BrokerUnavailable, LabError
from pillarbox.event.event import to_message
from pillarbox.lab import grounds
from pillarbox.lab.grounds import broker_ground, refuse_foreign, remove_leftovers
from pillarbox.lab.grounds.claims import MARK, claimed_here
from pillarbox.lab.model import NotVisible
from pillarbox.lab.ports import PREFIX, Address, BrokerGround
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from tests.servers import PREFIX as SETTING
from tests.servers import bootstrap_of, fresh_virtual_host, read_settings, unique
from tests.services_fixtures import _need


@pytest.fixture(autouse=True, scope="module")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", params=["embedded", "kafka", "rabbitmq"])
def broker_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(broker_name: str, request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The URL as it is given to the lab; None: embedded. RabbitMQ: a virtual host of this module's own."""
    if broker_name == "embedded":
        yield None
    elif broker_name == "kafka":
        yield _need(request, "kafka").url
    else:
        management = read_settings().get(f"{SETTING}RABBITMQ_MANAGEMENT")
        with fresh_virtual_host(_need(request, "rabbitmq").url, management) as url:
            yield f"{url}?management={management}" if management else url


@pytest.fixture
def ground(server: str | None) -> Iterator[BrokerGround]:
    with broker_ground(server, "W3-S1") as made:
        yield made


def _send(ground: BrokerGround, count: int) -> list[UUID]:
    ids = [uuid4() for _ in range(count)]
    with closing(open_publisher(ground.url)) as publisher:
        messages = [
            to_message(
                Event({"celsius": n}, type="lab.test", aggregate=("device", n)),
                ground.destination,
                event_id=one,
                occurred_at=datetime.now(UTC),
            )
            for n, one in enumerate(ids)
        ]
        assert all(isinstance(one, Confirmed) for one in publisher.publish(messages))
    return ids


def _read_and_acknowledge(ground: BrokerGround, consumer: str, count: int) -> None:
    source = make_source(ground.url, consumer, [ground.source(consumer)], ground.source_options())
    source.open()
    until, seen = time.monotonic() + 30, 0
    while seen < count:
        assert time.monotonic() < until
        batch = source.poll(0.2, count)
        source.acknowledge(batch)
        seen += len(batch)
    source.close()


def test_records_are_read_over_again_and_none_is_taken(ground: BrokerGround, broker_name: str) -> None:
    assert ground.records() == ()
    began = time.time()
    ids = _send(ground, 40)
    found = ground.records()
    assert {one.event_id for one in found} == set(map(str, ids))
    assert all(one.headers["id"] == one.event_id for one in found)
    assert len({one.place for one in found}) == 40
    assert ground.records() == found
    if broker_name == "kafka":
        assert all(one.at is not None and began - 0.2 <= one.at <= time.time() + 0.2 for one in found)
    else:
        assert all(one.at is None for one in found)


def test_its_state_and_the_consumers_position_are_told(ground: BrokerGround, broker_name: str) -> None:
    bell = f"{ground.destination.name}.bell"
    ground.source(bell)
    _send(ground, 4)
    before, unread = ground.state(), ground.committed(bell)
    assert before["records"] == 4
    _read_and_acknowledge(ground, bell, 4)
    after = ground.committed(bell)
    if broker_name == "rabbitmq":
        assert unread["ready"] == 4
        assert (after["ready"], after["unacknowledged"], after["consumers"]) == (0, 0, 0)
        queue = before["queues"][unread["queue"]]
        assert queue["type"] == "quorum"
        assert len(queue["members"]) >= 1
        assert queue["leader"] in queue["members"]
    else:
        assert unread["lag"] == 4
        assert set(unread["committed"].values()) <= {None, 0}
        assert after["lag"] == 0
        assert after["committed"] == {
            number: end if end else after["committed"][number] for number, end in after["ends"].items()
        }
        assert sum(before["end_offsets"].values()) == 4
    if broker_name == "kafka":
        assert before["replication_factor"] == 3
        assert before["min_insync_replicas"] == 2
        assert {len(brokers) for brokers in before["in_sync_replicas"].values()} == {3}
        assert before["uncommitted_records"] == 0


def test_its_settings_name_the_server_or_say_why_not(ground: BrokerGround, broker_name: str) -> None:
    found = ground.settings()
    assert found["broker"] == ground.name == broker_name
    if broker_name == "kafka":
        assert isinstance(found["server_version"], NotVisible)
        assert found["min.insync.replicas"] == "2"
        assert found["brokers"] == 3
    elif broker_name == "rabbitmq":
        assert found["server_version"][0].isdigit()
        assert found["product"] == "RabbitMQ"
    else:
        assert found["server_version"].startswith("SQLite 3")


def test_its_clock_is_near_ours_or_not_visible(ground: BrokerGround, broker_name: str) -> None:
    found = ground.clock_offset()
    if broker_name == "rabbitmq":
        assert isinstance(found, NotVisible)
    else:
        assert not isinstance(found, NotVisible)
        assert abs(found) < 0.2
        assert ground.records() == (), "asking for the time leaves nothing where the events go"


def test_a_proxy_can_stand_before_it_or_the_reason_is_told(ground: BrokerGround, broker_name: str) -> None:
    there = ground.through(20_001)
    if broker_name != "rabbitmq":
        assert ground.address is None
        assert isinstance(there, NotVisible)
        return
    assert isinstance(ground.address, Address)
    assert isinstance(there, str)
    assert "@127.0.0.1:20001/" in there
    assert there.replace("127.0.0.1:20001", f"{ground.address.host}:{ground.address.port}") == ground.url


def test_a_run_that_lives_is_left_alone_and_is_no_stranger(server: str | None, ground: BrokerGround) -> None:
    ids = _send(ground, 1)
    refuse_foreign(None, server)
    assert remove_leftovers(None, server) == []
    with broker_ground(server, "W3-S1") as other:
        assert other.destination != ground.destination
        assert other.records() == ()
    assert [one.event_id for one in ground.records()] == [str(ids[0])]


def test_nothing_is_left_also_after_an_error(server: str | None, broker_name: str) -> None:
    names: list[str] = []

    def fail() -> None:
        with broker_ground(server, "W3-S1") as made:
            names.append(made.destination.name)
            made.source(f"{made.destination.name}.bell")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names[0].startswith(PREFIX)
    until = time.monotonic() + 20
    while server is not None and any(one.startswith(names[0]) for one in _names(server)):
        assert time.monotonic() < until  # a Kafka broker that has not heard of the end yet may answer


@pytest.mark.parametrize("broker_name", ["kafka"], indirect=True)
def test_records_that_were_not_committed_are_counted_and_not_shown(server: str, ground: BrokerGround) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_of(server), "transactional.id": ground.destination.name})
    producer.init_transactions(20)
    for count, end in ((1, producer.commit_transaction), (2, producer.abort_transaction), (4, None)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(ground.destination.name, b"{}", headers={"id": str(uuid4())})
        assert producer.flush(20) == 0  # an abort throws away what was not sent yet
        if end is not None:
            end(20)
    began = time.monotonic()
    assert len(ground.records()) == 1
    state = ground.state()
    assert (state["records"], state["uncommitted_records"]) == (1, 6)
    assert time.monotonic() - began < 10, "nobody waits for the end of the transaction that is open"
    producer.commit_transaction(20)
    state = ground.state()
    assert (state["records"], state["uncommitted_records"]) == (5, 2)


@pytest.mark.parametrize("broker_name", ["kafka"], indirect=True)
def test_a_topic_of_somebody_else_is_foreign_and_left_alone(server: str, tmp_path: Path) -> None:
    # Not the lab's own prefix: labs of other tests on this cluster would rightly refuse to run meanwhile.
    from pillarbox.lab.grounds.kafka_topics import foreign_topics
    from tests.servers import create_topic

    admin = AdminClient({"bootstrap.servers": bootstrap_of(server), "log_level": 0})
    name = create_topic(admin, 1, 3, {})
    try:
        until = time.monotonic() + 20
        while not (found := foreign_topics(server, name)):  # a broker that has not heard of it yet may answer
            assert time.monotonic() < until
        assert found == [name]
        assert remove_leftovers(None, server) == []
        assert name in _names(server)
    finally:
        admin.delete_topics([name])[name].result(20)


@pytest.mark.parametrize("broker_name", ["kafka", "rabbitmq"], indirect=True)
def test_its_own_are_known_by_their_mark_also_on_another_machine(
    server: str, ground: BrokerGround, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.source(f"{ground.destination.name}.bell")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    refuse_foreign(None, server)
    assert remove_leftovers(None, server) == [], "it may live there"
    assert ground.records() == ()


@pytest.mark.parametrize("broker_name", ["rabbitmq"], indirect=True)
@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_a_namesake_on_rabbitmq_is_refused_by_name_and_left_alone(
    server: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grounds, "_PASSING_SECONDS", 0.2)
    if "management=" not in server:
        pytest.skip("without the management API no names can be listed")
    name = unique("pillarbox_lab_orders")
    with closing(pika.BlockingConnection(pika.URLParameters(server.partition("?")[0]))) as connection:
        channel = connection.channel()
        if kind == "queue":
            channel.queue_declare(name, durable=True)
        else:
            channel.exchange_declare(name, "topic", durable=True)
        with pytest.raises(LabError, match=name):
            refuse_foreign(None, server)
        assert remove_leftovers(None, server) == []
        assert name in _names(server)
        channel.queue_delete(name) if kind == "queue" else channel.exchange_delete(name)


@pytest.mark.parametrize("broker_name", ["rabbitmq"], indirect=True)
def test_what_a_consumer_on_rabbitmq_holds_is_told_once_it_has_left_and_not_guessed_before(
    server: str, ground: BrokerGround
) -> None:
    bell = f"{ground.destination.name}.bell"
    queue = ground.source(bell)
    _send(ground, 2)
    with closing(pika.BlockingConnection(pika.URLParameters(server.partition("?")[0]))) as connection:
        handed_out = connection.channel().consume(queue, inactivity_timeout=10)
        assert all(next(handed_out)[0] is not None for _ in range(2))
        during = ground.committed(bell)
        assert (during["ready"], during["consumers"]) == (0, 1)
        assert isinstance(during["unacknowledged"], NotVisible)
    until = time.monotonic() + 10
    while (after := ground.committed(bell))["ready"] != 2:
        assert time.monotonic() < until
    assert (after["unacknowledged"], after["consumers"]) == (0, 0)


@pytest.mark.parametrize("broker_name", ["rabbitmq"], indirect=True)
def test_what_a_consumer_makes_on_rabbitmq_is_removed_also_where_no_names_can_be_listed(server: str) -> None:
    before = _names(server)
    blind = f"{server.partition('?')[0]}?management=http://127.0.0.1:1"
    with broker_ground(blind, "W4-C2") as made:
        bell = f"{made.destination.name}.bell"
        with closing(make_source(made.url, bell, [made.source(bell)], {})) as source:
            source.open()
            assert len(_names(server) - before) >= 5  # exchange, audit, queue, dead letters, retries
    assert _names(server) == before


def test_a_server_that_does_not_answer_leaves_nothing_to_be_removed() -> None:
    before = claimed_here()
    with pytest.raises(BrokerUnavailable), broker_ground("amqp://127.0.0.1:1/", "W3-S1"):
        pass
    assert claimed_here() == before


@pytest.mark.parametrize("url", ["embedded:///tmp/events.log", "nats://127.0.0.1"])
def test_a_broker_that_the_lab_does_not_make_places_on_is_refused(url: str) -> None:
    with pytest.raises(BadUrl), broker_ground(url, "W3-S1"):
        pass


def _names(server: str) -> set[str]:
    if server.startswith("kafka:"):
        return set(
            AdminClient({"bootstrap.servers": bootstrap_of(server), "log_level": 0}).list_topics(timeout=10).topics
        )
    from pillarbox.lab.grounds.rabbitmq_management import Management
    from pillarbox.publish.rabbitmq.url import parse_rabbitmq_url

    api = Management(parse_rabbitmq_url(server, connect_timeout=5))
    return {*api.names("queues"), *api.names("exchanges")}


def test_the_mark_says_whose_it_is() -> None:
    assert "Pillarbox" in MARK
