"""The endpoints over real sockets: verdicts, deadlines, floods, and ports that are taken."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pillarbox.errors import CannotListen, ConfigError
from pillarbox.observe import server
from pillarbox.observe.lookout import Seen
from pillarbox.observe.server import Address, serving
from pillarbox.observe.snapshot import Snapshot
from pillarbox.policy.health import Health

ANY = Address("127.0.0.1", 0)


class Shown:
    def __init__(self, health: Health) -> None:
        self.health = health

    def snapshots(self) -> list[Snapshot]:
        return [Snapshot(0, "default", "r1", {"sent": 3}, self.health)]

    def backlogs(self) -> dict[str, Seen]:
        return {}


@pytest.fixture
def shown() -> Shown:
    return Shown(Health(True, True))


@pytest.fixture
def address(shown: Shown) -> Iterator[Address]:
    with serving(ANY, shown) as bound:
        yield bound


def get(address: Address, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_relay_that_is_alive_but_not_ready_is_told_apart(shown: Shown, address: Address) -> None:
    assert (get(address, "/health")[0], get(address, "/ready")[0]) == (200, 200)
    shown.health = Health(True, False, ("the broker is out of reach",))
    assert get(address, "/health")[0] == 200
    status, body = get(address, "/ready?verbose=1")
    assert status == 503
    assert json.loads(body)["relays"][0]["problems"] == ["the broker is out of reach"]
    shown.health = Health(False, False)
    assert get(address, "/health")[0] == 503


def test_metrics_are_prometheus_text(address: Address) -> None:
    status, body = get(address, "/metrics")
    assert status == 200
    assert b'pillarbox_relay_sent_total{outbox="default",process="0"} 3.0' in body


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("HEAD", "/health", 200), ("POST", "/health", 501)]
)
def test_anything_else_is_refused(address: Address, method: str, path: str, status: int) -> None:
    assert get(address, path, method)[0] == status


def test_clients_that_trickle_are_cut_and_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch, shown: Shown) -> None:
    monkeypatch.setattr(server, "DEADLINE", 1.0)
    with serving(ANY, shown) as bound:
        slow = [socket.create_connection(bound, timeout=10) for _ in range(server.WORKERS)]
        for one in slow:
            one.sendall(b"GET /health HTTP/1.1\r\n")
        status, _ = get(bound, "/health")  # waits for a worker that was freed
        assert status == 200
        for one in slow:
            one.settimeout(10)
            assert one.recv(100) == b""
            one.close()


def test_a_flood_of_connections_costs_no_threads(address: Address) -> None:
    before = threading.active_count()
    flood = [socket.create_connection(address, timeout=10) for _ in range(3 * server.MOST)]
    assert threading.active_count() <= before + server.WORKERS
    for one in flood:
        one.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert get(address, "/health")[0] == 200
            return
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline


def test_a_port_that_is_taken_is_said_with_its_code(address: Address, shown: Shown) -> None:
    with pytest.raises(CannotListen, match=rf"127.0.0.1:{address.port} cannot be listened on: Address already in use"):
        serving(address, shown).__enter__()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_said_with_its_code(shown: Shown, host: str) -> None:
    with pytest.raises(CannotListen):
        serving(Address(host, 0), shown).__enter__()


@pytest.mark.parametrize(
    "given", ["", "9464", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", ":-1"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError):
        Address.parse(given)


@pytest.mark.parametrize(("given", "host"), [(":80", ""), ("[::1]:80", "::1"), ("0.0.0.0:80", "0.0.0.0")])
def test_every_usual_way_to_write_an_address_is_understood(given: str, host: str) -> None:
    assert Address.parse(given) == (host, 80)
    assert str(Address.parse(given)) == given
