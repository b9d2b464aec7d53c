"""`pillarbox relay --http`: probes and metrics of a real process, in peace and while something is away."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request

import pytest

from .events import Shop
from .processes import Cli, Started

ANYWHERE = ("--http", "127.0.0.1:0")


def address(relay: Started) -> str:
    """Where it listens: the port was the system's choice."""
    relay.wait_for("/metrics")
    found = re.search(r"http://(127\.0\.0\.1:\d+)/health", relay.err)
    assert found
    return found[1]


def get(relay: Started, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address(relay)}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(relay: Started, name: str) -> float:
    """The sum over all series of that name."""
    lines = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", get(relay, "/metrics")[1], re.MULTILINE)
    return sum(map(float, lines))


def test_it_becomes_ready_counts_what_it_sends_and_ends_as_before(cli: Cli, shop: Shop) -> None:
    with cli.started("relay", *ANYWHERE, "--json", env=shop.env) as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        assert get(relay, "/health")[0] == 200
        shop.place(20)
        relay.until(lambda: metric(relay, "pillarbox_relay_sent_total") == 20)
        assert metric(relay, "pillarbox_outbox_relays") == 1
        relay.process.send_signal(signal.SIGTERM)
        ended = relay.ended()
    assert (ended.code, ended.json["sent"]) == (0, 20)


def test_a_broker_that_is_away_makes_it_unready_and_not_unhealthy(cli: Cli, shop: Shop) -> None:
    shop.place(3)
    with cli.started("relay", *ANYWHERE, "--broker", "amqp://127.0.0.1:1", env=shop.env) as relay:
        relay.until(lambda: "broker is out of reach" in get(relay, "/ready")[1])
        assert get(relay, "/ready")[0] == 503
        assert get(relay, "/health")[0] == 200
        assert metric(relay, "pillarbox_relay_broker_reachable") == 0
        assert metric(relay, "pillarbox_outbox_deliveries") == 3
        assert metric(relay, "pillarbox_outbox_oldest_seconds") > 0


def test_a_relay_that_is_frozen_answers_nothing_and_wakes_up_again(cli: Cli, shop: Shop) -> None:
    with cli.started("relay", *ANYWHERE, env=shop.env) as relay:
        where = address(relay)
        relay.process.send_signal(signal.SIGSTOP)
        with pytest.raises((TimeoutError, OSError)):
            urllib.request.urlopen(f"http://{where}/health", timeout=0.5)
        relay.process.send_signal(signal.SIGCONT)
        relay.until(lambda: get(relay, "/health")[0] == 200)


def test_a_port_that_is_taken_ends_it_before_it_touches_anything(cli: Cli, shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = cli.run("relay", "--http", f"127.0.0.1:{taken.getsockname()[1]}", "--json", env=shop.env)
    assert ended.code == 4
    assert json.loads(ended.err.splitlines()[-1])["code"] == "PB-080"


@pytest.mark.parametrize("given", ["nonsense", "127.0.0.1:99999", "127.0.0.1:-1", "::1:80"])
def test_what_is_no_address_is_refused(cli: Cli, shop: Shop, given: str) -> None:
    ended = cli.run("relay", "--http", given, env=shop.env)
    assert ended.code == 3
    ended.says("PB-001", "no address to listen on")


@pytest.mark.parametrize("given", ["-1", "0", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_refused(cli: Cli, shop: Shop, given: str) -> None:
    ended = cli.run("relay", "--until-empty", "--timeout", given, env=shop.env)
    assert ended.code == 2
    assert "--timeout" in ended.err
