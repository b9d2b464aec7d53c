"""What a relay process does beside sending: listening on PostgreSQL, pruning by the way."""

import re
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from pillarbox import Event, Outbox, Topic
from pillarbox.embedded import EmbeddedLog
from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Cli
from .test_relay_endpoints import ANYWHERE, get, metric


def sent(shop: Shop) -> int:
    return int(shop.rows("SELECT COUNT(*) FROM outbox_receipt")[0][0])


def test_a_relay_that_listens_is_woken_long_before_it_would_have_polled(
    cli: Cli, postgres_url: str, tmp_path: Path
) -> None:
    shop = Shop.made(postgres_url, f"embedded:///{tmp_path}/log.db")
    slow = {"PILLARBOX_RELAY__POLL_MAX": "60", "PILLARBOX_RELAY__POLL_MIN": "60"}
    engine = create_engine(postgres_url)
    outbox = Outbox(bind=engine, notify=True)
    with cli.started("relay", "--listen", *ANYWHERE, env=shop.env | slow) as relay:
        relay.wait_for("listening for commits")
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        for number in range(1, 4):
            began = time.monotonic()
            with engine.begin() as connection:
                outbox.add(connection, Event({}, type="t", aggregate=("a", number)), to="orders")
            relay.until(lambda n=number: sent(shop) == n)  # type: ignore[misc]
            assert time.monotonic() - began < 20
        relay.process.send_signal(signal.SIGTERM)
        assert relay.ended().code == 0
    engine.dispose()


def test_listening_to_a_database_that_cannot_tell_is_refused(cli: Cli, shop: Shop) -> None:
    ended = cli.run("relay", "--listen", env=shop.env)
    assert ended.code == 3
    ended.says("PB-001", "Only PostgreSQL can be listened to, not sqlite")


def test_a_relay_prunes_by_the_way_and_counts_it(cli: Cli, shop: Shop) -> None:
    pruning = {
        "PILLARBOX_RETENTION__BY_RELAY": "true",
        "PILLARBOX_RETENTION__KEEP": "0.05",
        "PILLARBOX_RETENTION__INTERVAL": "0.2",
    }
    shop.place(20)
    with cli.started("relay", *ANYWHERE, env=shop.env | pruning) as relay:
        relay.until(lambda: shop.rows("SELECT COUNT(*) FROM outbox_event")[0][0] <= 1)
        assert metric(relay, "pillarbox_relay_sent_total") == 20
        relay.until(lambda: metric(relay, "pillarbox_relay_pruned_total") >= 19)


@pytest.mark.parametrize("archive", ["no.such.module:function"])
def test_an_archive_that_cannot_be_loaded_is_said_at_the_start(cli: Cli, shop: Shop, archive: str) -> None:
    env = shop.env | {"PILLARBOX_RETENTION__BY_RELAY": "true", "PILLARBOX_RETENTION__ARCHIVE": archive}
    ended = cli.run("relay", env=env)
    assert ended.code == 3
    assert re.search("PB-051", ended.err)


def test_each_event_goes_where_its_route_or_its_own_destination_says(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    engine = relay_engine(shop.database)
    outbox = Outbox(bind=engine, routes={"order.created": "orders", "order.paid": ["orders", Topic("billing")]})

    def event(kind: str, number: int) -> Event[dict[str, str]]:
        return Event({}, type=kind, aggregate=("order", number))

    with engine.begin() as connection:
        for number in range(10):
            outbox.add(connection, event("order.created", number))
            outbox.add(connection, event("order.paid", number))
            outbox.add(connection, event("order.created", number), to="audit")  # its own, instead of the route's
            outbox.add(connection, event("order.noted", number), to=f"tenant-{number % 2}")
    engine.dispose()
    drained = cli.run("relay", "--until-empty", "--json", env=shop.env)
    assert (drained.code, drained.json["sent"]) == (0, 50)
    with EmbeddedLog(tmp_path / "log.db") as log:
        assert log.topics() == {"orders": 20, "billing": 10, "audit": 10, "tenant-0": 5, "tenant-1": 5}
