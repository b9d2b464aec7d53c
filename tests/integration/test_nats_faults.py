"""NATS that refuses, breaks and comes back: each outcome says what is really known. On servers of their own."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.errors import AccessRefused, BrokerUnavailable
from pillarbox.event.destination import Exchange, Topic
from pillarbox.lab.proxy import fault_proxy
from pillarbox.ports import Confirmed, Outcome, Publisher, Rejected, Unavailable, Unknown, Withheld
from pillarbox.publish.nats.connection import connect
from pillarbox.publish.nats.loop import LoopThread
from pillarbox.publish.nats.url import parse_nats_url
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_order import in_order, resend
from pillarbox.testing.conformance.publisher_world import message, messages
from tests.certificates import Authority
from tests.nats_server import OwnNats, Streams, own_nats

USERS = """
authorization {
  users = [
    { user: all, password: "p?ss w/rd" },
    { user: some, password: secret, permissions: { publish: ["Orders", "$JS.API.>", "_INBOX.>"], subscribe: ">" } }
  ]
}
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[OwnNats]:
    """For tests that leave the server as it was."""
    with own_nats() as server:
        yield server


@pytest.fixture
def streams(shared: OwnNats) -> Iterator[Streams]:
    with closing(Streams(shared.url)) as streams:
        yield streams


@pytest.fixture
def publisher(shared: OwnNats) -> Iterator[Publisher]:
    with closing(open_publisher(shared.url, deadline=5)) as publisher:
        yield publisher


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_full_stream_that_discards_nothing_is_an_outage_of_its_own_destination(
    streams: Streams, publisher: Publisher
) -> None:
    full, other = streams.make(max_msgs=2, discard="new"), streams.make()
    outcomes = publisher.publish([message(Topic(full)) for _ in range(3)] + [message(Topic(other))])
    assert [type(one) for one in outcomes] == [Confirmed, Confirmed, Unavailable, Confirmed]
    assert isinstance(outcomes[2], Unavailable)
    assert outcomes[2].broker_answers
    assert "maximum messages exceeded" in outcomes[2].reason
    streams.api(f"STREAM.PURGE.{full}")
    assert isinstance(publisher.publish([message(Topic(full))])[0], Confirmed)


def test_a_full_stream_stops_its_keys_and_no_other(streams: Streams, publisher: Publisher) -> None:
    full, other = streams.make(max_msgs=2, discard="new"), streams.make()
    sent = [*messages(Topic(full), 6, keys=1), *messages(Topic(other), 6, keys=1)]
    outcomes = publisher.publish_in_order(sent)
    assert [type(one) for one in outcomes[:6]] == [Confirmed, Confirmed, Unavailable, Withheld, Withheld, Withheld]
    assert {type(one) for one in outcomes[6:]} == {Confirmed}


def test_a_message_over_the_limit_of_its_stream_is_refused_for_good(streams: Streams, publisher: Publisher) -> None:
    small = Topic(streams.make(max_msg_size=1_000))
    outcomes = publisher.publish([message(small), message(small, payload=b"x" * 2_000), message(small)])
    assert [type(one) for one in outcomes] == [Confirmed, Rejected, Confirmed]
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].permanent
    assert "exceeds" in outcomes[1].reason


def test_headers_count_for_the_size_and_a_large_one_does_not_cost_the_connection(
    streams: Streams, publisher: Publisher
) -> None:
    there = Topic(streams.make())
    limit = 1024 * 1024
    outcomes = publisher.publish([message(there, payload=b"x" * (limit - 50)), message(there)])
    assert [type(one) for one in outcomes] == [Rejected, Confirmed]


@pytest.mark.parametrize("name", ["$JS.API.STREAM.DELETE.x", "orders.*", "orders.>", "a b", "a..b", ".a", "a\r\nPING"])
def test_what_is_no_subject_is_refused_for_good_and_never_sent(publisher: Publisher, name: str) -> None:
    (refused,) = publisher.publish([message(Topic("x"), destination=name)])
    assert isinstance(refused, Rejected)
    assert refused.permanent


def test_headers_that_the_server_would_obey_are_only_carried(streams: Streams, publisher: Publisher) -> None:
    there = Topic(streams.make(allow_rollup_hdrs=True, allow_msg_ttl=True))
    publisher.publish([message(there, payload=b"first")])
    orders = '{"Nats-Rollup":"all","nats-ttl":"1s","Nats-Msg-Id":"x","Nats-Expected-Last-Sequence":"99"}'
    (outcome,) = publisher.publish([message(there, headers=orders)])
    assert isinstance(outcome, Confirmed)
    first, second = streams.messages(there.name)
    assert first.body == b"first"
    assert {name: second.headers[name] for name in ("Nats-Rollup", "nats-ttl")} == {
        "Nats-Rollup": "all",
        "nats-ttl": "1s",
    }


def test_a_stream_named_in_the_url_must_be_the_one_that_takes_it(shared: OwnNats, streams: Streams) -> None:
    mine, other = streams.make(), streams.make()
    with closing(open_publisher(f"{shared.url}?stream={mine}", deadline=5)) as publisher:
        right, wrong = publisher.publish([message(Topic(mine)), message(Topic(other))])
    assert isinstance(right, Confirmed)
    assert isinstance(wrong, Rejected)
    assert (wrong.permanent, wrong.of_destination) == (False, True)
    assert streams.count(other) == 0


def test_a_subject_that_only_plain_subscribers_hear_is_one_without_a_stream(
    shared: OwnNats, publisher: Publisher
) -> None:
    loop, parsed = LoopThread("listener"), parse_nats_url(shared.url)
    listener = loop.ask(connect(parsed, "listener", first=0, seconds=5), 10)
    loop.ask(listener.subscribe("heard.by.all"), 10)
    loop.ask(listener.flush(), 10)
    with closing(open_publisher(shared.url, deadline=1)) as hasty:
        (outcome,) = hasty.publish([message(Topic("heard.by.all"))])
    loop.stop(listener.farewell())
    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, outcome.of_destination) == (False, True)


def test_a_routing_key_is_the_rest_of_the_subject(streams: Streams, publisher: Publisher) -> None:
    name = streams.make("{}.>")
    (outcome,) = publisher.publish([message(Exchange(name, "created"))])
    assert isinstance(outcome, Confirmed)
    assert len(streams.messages(name, f"{name}.created")) == 1


# Duplicates -----------------------------------------------------------------------------------------------------------


def test_the_server_drops_what_comes_twice_and_confirms_it_where_the_first_stands(
    streams: Streams, publisher: Publisher
) -> None:
    there = Topic(streams.make())
    same = message(there)
    assert publisher.publish([same, message(there), same]) == [
        Confirmed(None, 1),
        Confirmed(None, 2),
        Confirmed(None, 1),
    ]
    assert streams.count(there.name) == 2


def test_an_event_for_two_subjects_of_one_stream_is_no_duplicate(streams: Streams, publisher: Publisher) -> None:
    name = streams.make("{}", "{}.b")
    one = message(Topic(name))
    publisher.publish([one, one._replace(destination=f"{name}.b")])
    assert streams.count(name) == 2


# Users and TLS --------------------------------------------------------------------------------------------------------


def test_users_tokens_and_permissions() -> None:
    with own_nats(USERS, ready=_listens) as server:
        place = server.url.removeprefix("nats://")
        with pytest.raises(AccessRefused, match="PB-008"):
            open_publisher(f"nats://all:wrong@{place}", deadline=5)
        with pytest.raises(AccessRefused):
            open_publisher(server.url, deadline=5)
        streams = Streams(f"nats://all:p%3Fss%20w%2Frd@{place}")
        streams.make(name="Orders")
        streams.make(name="Forbidden")
        with closing(open_publisher(f"nats://some:secret@{place}", deadline=5)) as publisher:
            started = time.monotonic()
            allowed, refused = publisher.publish([message(Topic("Orders")), message(Topic("Forbidden"))])
        assert time.monotonic() - started < 2
        assert isinstance(allowed, Confirmed)
        assert isinstance(refused, Rejected)
        assert refused.permanent
        assert "not authorised" in refused.reason
        streams.close()


def test_a_server_without_jetstream_is_an_outage_and_says_so() -> None:
    with own_nats() as server:
        path = server.place.path("data", "nats") / "nats.conf"
        server.end()
        path.write_text(f'listen: "127.0.0.1:{server.port}"\n')
        process = server.parts()["nats"]
        from services.nats import program
        from services.place import Place

        process.spawn([program(Place.of_checkout()), "-c", path])
        process.wait(lambda: _listens(server.port), seconds=10)
        with closing(open_publisher(server.url, deadline=5)) as publisher:
            (outcome,) = publisher.publish([message(Topic("orders"))])
        assert isinstance(outcome, Unavailable)
        assert "no JetStream" in outcome.reason


def test_tls_with_the_right_authority_and_a_client_certificate(tmp_path: Path) -> None:
    authority, strange = Authority(tmp_path / "tls"), Authority(tmp_path / "strange")
    authority.issue("server", "localhost")
    authority.issue("client", "relay.example")
    folder = tmp_path / "tls"
    server_files = f'cert_file: "{folder}/server.pem", key_file: "{folder}/server.key", ca_file: "{folder}/ca.pem"'
    tls = f"tls {{ {server_files}, verify: true }}\n"
    with own_nats(tls, ready=_listens) as server:
        own = f"&cert={folder}/client.pem&key={folder}/client.key"
        url = f"nats://localhost:{server.port}?ca={folder}/ca.pem{own}"
        with closing(open_publisher(url, deadline=5)) as publisher, closing(Streams(url)) as streams:
            assert isinstance(publisher.publish([message(Topic(streams.make()))])[0], Confirmed)
        with pytest.raises(BrokerUnavailable, match="TLS handshake failed"):
            open_publisher(f"nats://localhost:{server.port}?ca={strange.ca}{own}", deadline=5)
        with pytest.raises(BrokerUnavailable):
            open_publisher(f"nats://localhost:{server.port}?ca={folder}/ca.pem", deadline=5)


def test_no_password_goes_to_a_server_that_offers_no_tls(shared: OwnNats) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        info = b'INFO {"version":"2.10.0","headers":true,"max_payload":1048576,"auth_required":true}\r\n'

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(info)
                connection.settimeout(5)
                while data := connection.recv(4096):
                    heard.append(data)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises(BrokerUnavailable, match="offers no TLS"):
            open_publisher(f"nats://relay:secret@127.0.0.1:{port}?tls=yes", deadline=5)
        thread.join(10)
    assert b"secret" not in b"".join(heard)


# The network and the server -------------------------------------------------------------------------------------------


def test_C055_a_link_cut_between_write_and_acknowledgement_leaves_the_outcome_unknown(
    shared: OwnNats, streams: Streams
) -> None:
    """C055: without its acknowledgement nothing counts as delivered, although the stream has it."""
    there = Topic(streams.make())
    with (
        fault_proxy("127.0.0.1", shared.port) as proxy,
        closing(open_publisher(f"nats://127.0.0.1:{proxy.port}", deadline=5)) as publisher,
    ):
        assert isinstance(publisher.publish([message(there)])[0], Confirmed)
        proxy.lose_answers()
        answers = in_background(lambda: publisher.publish(messages(there, 20)))
        wait_for(lambda: streams.count(there.name) == 21)
        proxy.cut()
        for outcome in answers():
            assert isinstance(outcome, Unknown)
            assert not outcome.destination_healthy
        proxy.heal()
        assert isinstance(publisher.publish([message(there)])[0], Confirmed)


def test_a_server_that_is_away_is_told_quickly_and_found_again() -> None:
    with own_nats() as server, closing(Streams(server.url)) as streams:
        there = Topic(streams.make())
        with closing(open_publisher(server.url, deadline=10)) as publisher:
            publisher.publish([message(there)])
            server.kill()
            wait_for(lambda: isinstance(publisher.publish([message(there)])[0], Unavailable))
            started = time.monotonic()
            outcomes = publisher.publish(messages(there, 500))
            assert {type(one) for one in outcomes} == {Unavailable}
            assert time.monotonic() - started < 5
            server.start()
            assert isinstance(publisher.publish([message(there)])[0], Confirmed)


def test_a_frozen_server_costs_the_deadline_and_no_more() -> None:
    with own_nats() as server, closing(Streams(server.url)) as streams:
        there = Topic(streams.make())
        with closing(open_publisher(server.url, deadline=2)) as publisher:
            publisher.publish([message(there)])
            server.send(signal.SIGSTOP)
            try:
                started = time.monotonic()
                outcomes = publisher.publish([message(there, payload=b"x" * 500_000) for _ in range(100)])
                assert 1.0 < time.monotonic() - started < 3.5
                assert {type(one) for one in outcomes} <= {Unknown, Unavailable}
                assert not any(one.destination_healthy for one in outcomes if isinstance(one, Unknown))
                started = time.monotonic()
                (outcome,) = publisher.publish([message(there)])  # now it cannot even connect
                assert isinstance(outcome, Unavailable)
                assert time.monotonic() - started < 3
            finally:
                server.send(signal.SIGCONT)
            wait_for(lambda: isinstance(publisher.publish([message(there)])[0], Confirmed))


def test_a_publisher_closes_though_the_server_is_frozen() -> None:
    with own_nats() as server:
        publisher = open_publisher(server.url, deadline=5)
        server.send(signal.SIGSTOP)
        started = time.monotonic()
        publisher.close()
        server.send(signal.SIGCONT)
        assert time.monotonic() - started < 5


def test_a_server_killed_under_load_again_and_again_loses_nothing_and_keeps_each_key_in_order() -> None:
    with own_nats() as server, closing(Streams(server.url)) as streams:
        there = Topic(streams.make())
        sent = messages(there, 1_000, keys=20)
        with closing(open_publisher(server.url, deadline=5)) as publisher:
            stop = threading.Event()

            def strike() -> None:
                while not stop.wait(0.3):
                    server.kill()
                    server.start()

            striking = threading.Thread(target=strike)
            striking.start()
            try:
                for start in range(0, 1_000, 100):
                    resend(publisher.publish_in_order, sent[start : start + 100])
                    time.sleep(0.02)
            finally:
                stop.set()
                striking.join(30)
        arrived = streams.messages(there.name)
    assert in_order(sent, arrived)
    assert len(arrived) == 1_000  # the server's window drops what was sent again


# Helpers --------------------------------------------------------------------------------------------------------------


def in_background(work: Callable[[], list[Outcome]]) -> Callable[[], list[Outcome]]:
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.extend(work()))
    thread.start()

    def answers() -> list[Outcome]:
        thread.join(20)
        return found

    return answers


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.01)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
