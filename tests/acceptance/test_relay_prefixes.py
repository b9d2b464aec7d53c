"""Outboxes with table prefixes in one database and one relay process: the trouble of one is not the other's."""

import json
import signal
from pathlib import Path

import pytest

from pillarbox import Event, Outbox
from pillarbox.embedded import EmbeddedLog
from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Cli, Inline
from .test_relay_endpoints import get
from .test_relay_outboxes import by_outbox, sent, served, write_settings

KEYS = 4
families = pytest.mark.parametrize("database_name", ["sqlite", "postgres", "mysql"], indirect=True)


def two_of(url: str, folder: Path, *names: str) -> list[Shop]:
    return [Shop.made(url, f"embedded:///{folder / name}.log", f"{name}_") for name in names or ("one", "two")]


def put(shop: Shop, numbers: range) -> None:
    engine = relay_engine(shop.database)
    outbox = Outbox(bind=engine, table_prefix=shop.table_prefix)
    with engine.begin() as connection:
        for n in numbers:
            outbox.add(connection, Event({"n": n}, type="order.created", key=str(n % KEYS)), to="orders")
    engine.dispose()


def arrived(shop: Shop) -> dict[int, list[int]]:
    """What the broker got, by key, in its order."""
    found: dict[int, list[int]] = {}
    with EmbeddedLog(shop.broker.removeprefix("embedded://")) as log:
        for record in sorted(log.records("orders"), key=lambda one: (one.partition, one.offset)):
            n = json.loads(record.body)["n"]
            found.setdefault(n % KEYS, []).append(n)
    return found


def in_order(*ranges: range) -> dict[int, list[int]]:
    return {key: [n for one in ranges for n in one if n % KEYS == key] for key in range(KEYS)}


@families
def test_one_whose_table_is_missing_leaves_the_other_alone_and_goes_on_in_order(
    cli: Cli, tmp_path: Path, database_url: str
) -> None:
    one, two = two_of(database_url, tmp_path)
    put(two, range(20))
    two.execute("DROP VIEW outbox_status")
    two.execute("ALTER TABLE outbox_ready RENAME TO two_away")
    with cli.started(*served(cli, one=one, two=two), "--json") as relay:
        put(one, range(40))
        relay.until(lambda: sent(one) == 40)
        relay.wait_for("outbox two: the relay ended and is started again")
        put(one, range(40, 60))
        relay.until(lambda: sent(one) == 60)
        assert (get(relay, "/ready")[0], sent(two)) == (503, 0)
        two.execute("ALTER TABLE two_away RENAME TO two_outbox_ready")
        put(two, range(20, 30))
        relay.until(lambda: sent(two) == 30)
        relay.until(lambda: by_outbox(relay, "pillarbox_relay_sent_total") == {"one": 60, "two": 30})
        relay.process.send_signal(signal.SIGTERM)
        ended = relay.ended()
    names = [report["relay"].rpartition(".")[2] for report in ended.json["relays"]]
    assert (ended.code, names, ended.json["sent"]) == (0, ["one", "two"], 90)
    assert (arrived(one), arrived(two)) == (in_order(range(60)), in_order(range(30)))


@pytest.mark.parametrize(
    ("database_name", "ownership"),
    [("sqlite", "row"), ("postgres", "row"), ("mysql", "partition")],
    indirect=["database_name"],
)
def test_one_whose_broker_is_away_leaves_the_other_alone(
    cli: Cli, tmp_path: Path, database_url: str, ownership: str
) -> None:
    one, two = two_of(database_url, tmp_path)
    away = Shop(two.database, "amqp://127.0.0.1:1", two.table_prefix)
    with cli.started(*served(cli, one=one, two=away), "--ownership", ownership) as relay:
        put(two, range(5))
        put(one, range(20))
        relay.until(lambda: sent(one) == 20)
        relay.until(lambda: by_outbox(relay, "pillarbox_relay_broker_reachable") == {"one": 1, "two": 0})
        assert sent(two) == 0
    assert sorted(n for found in arrived(one).values() for n in found) == list(range(20))


def test_the_same_tables_twice_are_refused(cli: Cli, tmp_path: Path) -> None:
    (one,) = two_of(f"sqlite:///{tmp_path / 'both.db'}", tmp_path, "one")
    refused = cli.run(*served(cli, one=one, two=Shop(one.database, "embedded:///other.log", one.table_prefix)))
    assert refused.code == 3
    refused.says("PB-001", "one and two are the same tables", "table_prefix")


def test_a_prefix_that_cannot_be_is_refused_at_the_start(inline: Inline, shop: Shop) -> None:
    for command in (("relay",), ("status",), ("init",), ("init", "--sql")):
        refused = inline.run(*command, "--table-prefix", "Shop-", env=shop.env)
        assert refused.code == 3, command
        refused.says("PB-033", "'Shop-'")


def test_each_command_works_on_the_outbox_that_is_named(inline: Inline, tmp_path: Path) -> None:
    shops = two_of(f"sqlite:///{tmp_path / 'both.db'}", tmp_path)
    write_settings(inline.folder, one=shops[0], two=shops[1])
    put(shops[1], range(3))

    def run(*arguments: str) -> dict[str, object]:
        done = inline.run(*arguments, "--json", "--outbox", "two")
        assert done.code == 0, done.err
        return done.json  # type: ignore[no-any-return]

    assert run("status")["waiting"] == 3
    assert run("init", "--part", "outbox")["done"] == ["The outbox is up to date (revision 0002)."]
    assert "two_outbox_event" in str(run("init", "--sql")["sql"])
    shops[1].kill_all()
    ids = [one["event_id"] for one in run("dead", "list")["dead_letters"]]  # type: ignore[attr-defined]
    assert len(ids) == 3
    assert run("dead", "show", ids[0])
    assert run("dead", "bury", ids[0], "--reason", "none")["buried"] == 1
    assert run("dead", "replay", ids[1])["replayed"] == 1
    assert run("held", "list")["total"] == 0
    assert run("relay", "--until-empty")["sent"] == 1
    assert run("prune", "--keep", "0s")["removed"] == 1
    assert inline.run("status", "--json", "--outbox", "one").json["counts"]["SENT"] == 0
    for missing in (("held", "release", "k"), ("held", "skip", "k", "--reason", "none")):
        assert inline.run(*missing, "--outbox", "two").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("status",), 3, "Say which with --outbox: one, two"),
        (("dead", "list", "--outbox", "three"), 3, "no outbox 'three' in the settings. fix: Say which with --outbox:"),
        (("relay", "--outbox", "three"), 3, "Say which with --outbox: one, two"),
        (("prune", "--outbox", "one", "--database", "sqlite:///x.db"), 2, "not together with --database or --table"),
        (("relay", "--outbox", "one", "--table-prefix", "x_"), 2, "not together with --database or --table"),
    ],
)
def test_what_names_no_outbox_is_refused_with_the_names(
    inline: Inline, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    url = f"sqlite:///{tmp_path / 'both.db'}"
    write_settings(inline.folder, two=Shop(url, "embedded:///b", "b_"), one=Shop(url, "embedded:///a", "a_"))
    refused = inline.run(*arguments)
    assert refused.code == code, refused.err
    assert said in " ".join(refused.err.replace("│", " ").split())


def test_without_a_name_the_common_database_is_meant_or_the_only_outbox(inline: Inline, shop: Shop) -> None:
    (one,) = two_of(shop.database, inline.folder, "one")
    put(one, range(2))
    shop.place(1)
    write_settings(inline.folder, one=one)
    assert inline.run("status", "--json").json["waiting"] == 2
    assert inline.run("status", "--json", env=shop.env).json["waiting"] == 1
    assert inline.run("status", "--json", "--outbox", "one", env=shop.env).json["waiting"] == 2
    named = ("--database", shop.database, "--table-prefix", "one_")
    assert inline.run("status", "--json", *named).json["waiting"] == 2
    (inline.folder / "pillarbox.toml").unlink()
    inline.run("status", "--outbox", "one").says("There are no [outboxes] at all")


def test_an_outbox_without_a_prefix_of_its_own_has_the_common_one(inline: Inline, shop: Shop) -> None:
    (one,) = two_of(shop.database, inline.folder, "one")
    put(one, range(2))
    env = {
        "PILLARBOX_OUTBOXES__A__DATABASE": shop.database,
        "PILLARBOX_OUTBOXES__B__DATABASE": shop.database,
        "PILLARBOX_OUTBOXES__B__TABLE_PREFIX": "nowhere_",
        "PILLARBOX_TABLE_PREFIX": "one_",
    }
    assert inline.run("status", "--json", "--outbox", "a", env=env).json["waiting"] == 2
    missed = inline.run("status", "--outbox", "b", env=env)
    assert missed.code == 5
    missed.says("PB-006", "no table nowhere_outbox_meta", "init --table-prefix nowhere_")
    assert "no setting" not in missed.err
