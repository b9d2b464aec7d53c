"""`pillarbox relay` as a real process: signals, draining, a broker that is away."""

import json
import signal

import pytest

from .events import Shop
from .processes import Cli, Inline


def test_until_empty_sends_everything_reports_it_and_ends(cli: Cli, shop: Shop) -> None:
    shop.place(500)
    drained = cli.run("relay", "--until-empty", "--relay-id", "r1", "--batch", "100", "--json", env=shop.env)
    assert drained.code == 0, drained.err
    assert drained.json["relay"] == "r1"
    assert (drained.json["sent"], drained.json["left"]) == (500, 0)
    assert shop.rows("SELECT COUNT(*), COUNT(DISTINCT relay) FROM outbox_receipt") == [(500, 1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_relay_with_everything_settled_or_given_back(cli: Cli, shop: Shop, number: int) -> None:
    with cli.started("relay", "--batch", "50", "--json", env=shop.env) as relay:
        relay.wait_for("outbox on")
        shop.place(1000)
        relay.until(lambda: shop.rows("SELECT COUNT(*) FROM outbox_receipt")[0][0])
        relay.process.send_signal(number)
        ended = relay.ended()
    assert ended.code == 0, ended.err
    ended.says("finishing what is in flight", "ended")
    assert shop.rows("SELECT COUNT(*) FROM outbox_ready WHERE owner <> ''") == [(0,)]
    sent = ended.json["sent"]
    assert shop.rows("SELECT COUNT(*) FROM outbox_receipt") == [(sent,)]
    assert shop.rows("SELECT COUNT(*) FROM outbox_ready") == [(1000 - sent,)]


def test_a_killed_relays_events_are_sent_by_another_when_the_lease_ends(cli: Cli, shop: Shop) -> None:
    lease = ("--lease", "1", "--broker-deadline", "0.4", "--batch", "20")
    with cli.started("relay", *lease, env=shop.env) as relay:
        relay.wait_for("outbox on")
        shop.place(1000)
        relay.until(lambda: shop.rows("SELECT COUNT(*) FROM outbox_receipt")[0][0])
        relay.process.kill()
        relay.process.wait(10)
    with cli.started("relay", *lease, env=shop.env) as relay:
        relay.until(lambda: shop.rows("SELECT COUNT(*) FROM outbox_receipt") == [(1000,)])


@pytest.mark.parametrize("broker", ["kafka://127.0.0.1:1", "amqp://guest:geheim@127.0.0.1:1"])
def test_a_broker_that_is_away_at_the_start_is_waited_for_and_charges_nothing(
    cli: Cli, shop: Shop, broker: str
) -> None:
    shop.place(3)
    settings = ("--broker", broker, "--broker-deadline", "2", "--lease", "30", "--log-json")
    with cli.started("relay", *settings, env=shop.env) as relay:
        relay.wait_for("waiting for it", timeout=30)
        relay.process.send_signal(signal.SIGTERM)
        ended = relay.ended(30)
    assert ended.code == 0, ended.err
    ended.says("PB-005")
    assert "geheim" not in ended.err
    assert all(json.loads(line) for line in ended.err.splitlines() if line.startswith("{"))
    assert shop.rows("SELECT COUNT(*), MAX(attempts), MAX(claims) FROM outbox_ready") == [(3, 0, 0)]


def test_draining_ends_at_its_timeout_when_the_broker_stays_away(cli: Cli, shop: Shop) -> None:
    shop.place(3)
    ended = cli.run(
        "relay", "--until-empty", "--timeout", "1", "--broker", "amqp://127.0.0.1:1", "--json", env=shop.env
    )
    assert ended.code == 4, ended.err
    assert ended.json["left"] == 3


def test_draining_says_no_when_an_event_died(cli: Cli, shop: Shop, rabbitmq_url: str) -> None:
    shop.place(2, to="no.such.exchange")
    ended = cli.run("relay", "--until-empty", "--json", env=shop.env | {"PILLARBOX_BROKER": rabbitmq_url})
    assert ended.code == 1, ended.err
    assert ended.json["sent"] == 0


def test_draining_tells_people_why_it_says_no(inline: Inline, shop: Shop) -> None:
    shop.place(1)
    shop.execute("UPDATE outbox_ready SET leased_until = '2100-01-01 00:00:00', owner = 'another'")
    ended = inline.run("relay", "--ownership", "row", "--until-empty", env=shop.env)
    assert ended.code == 1
    ended.says("Not empty: 1 event is left, see `pillarbox status`.")
