"""Several outboxes in one relay process: each is served, and the trouble of one is not the others'."""

import re
import shutil
import signal
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from .events import Shop
from .processes import Cli, Started
from .test_relay_endpoints import ANYWHERE, get


def served(cli: Cli, **shops: Shop) -> tuple[str, ...]:
    """A settings file for these, and the command."""
    write_settings(cli.folder, **shops)
    return ("relay", *ANYWHERE, "--lease", "2", "--broker-deadline", "0.5")


def write_settings(folder: Path, **shops: Shop) -> None:
    settings = {
        name: {"database": one.database, "broker": one.broker, "table_prefix": one.table_prefix}
        for name, one in shops.items()
    }
    tables = [[f"[outboxes.{n}]", *(f'{key} = "{value}"' for key, value in t.items())] for n, t in settings.items()]
    (folder / "pillarbox.toml").write_text("\n".join(line for table in tables for line in table))


def sent(shop: Shop) -> int:
    return int(shop.rows("SELECT COUNT(*) FROM outbox_receipt")[0][0])


def sqlite_shop(folder: Path, name: str) -> Shop:
    return Shop.made(f"sqlite:///{folder / name}.db", f"embedded:///{folder / name}.log")


def by_outbox(relay: Started, metric: str) -> dict[str, float]:
    found = re.findall(rf'^{metric}{{outbox="(\w+)".*}} (\S+)$', get(relay, "/metrics")[1], re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_two_outboxes_are_served_shown_apart_and_reported_together(cli: Cli, tmp_path: Path) -> None:
    one, two = sqlite_shop(tmp_path, "one"), sqlite_shop(tmp_path, "two")
    with cli.started(*served(cli, one=one, two=two), "--json") as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        one.place(10)
        two.place(20)
        relay.until(lambda: (sent(one), sent(two)) == (10, 20))
        relay.until(lambda: by_outbox(relay, "pillarbox_relay_sent_total") == {"one": 10, "two": 20})
        relay.process.send_signal(signal.SIGTERM)
        ended = relay.ended()
    assert (ended.code, ended.json["sent"]) == (0, 30)
    assert [report["outbox"] for report in ended.json["relays"]] == ["one", "two"]


def test_an_outbox_that_is_down_or_refuses_leaves_the_others_alone_and_comes_back(cli: Cli, tmp_path: Path) -> None:
    one, two = sqlite_shop(tmp_path, "one"), sqlite_shop(tmp_path, "two")
    database = tmp_path / "two.db"
    two.place(5)
    shutil.move(database, tmp_path / "away.db")
    with cli.started(*served(cli, one=one, two=two)) as relay:
        relay.wait_for("outbox two: the relay ended and is started again")
        one.place(10)
        relay.until(lambda: sent(one) == 10)
        assert get(relay, "/ready")[0] == 503
        assert get(relay, "/health")[0] == 200
        shutil.move(tmp_path / "away.db", database)
        relay.until(lambda: sent(two) == 5)
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        assert by_outbox(relay, "pillarbox_relay_restarts_total")["two"] >= 1


def test_a_broker_of_one_that_is_away_does_not_hold_up_the_others(cli: Cli, tmp_path: Path) -> None:
    one = sqlite_shop(tmp_path, "one")
    two = Shop(sqlite_shop(tmp_path, "two").database, "amqp://127.0.0.1:1")
    with cli.started(*served(cli, one=one, two=two)) as relay:
        two.place(1)
        one.place(10)
        relay.until(lambda: sent(one) == 10)
        relay.until(lambda: by_outbox(relay, "pillarbox_relay_broker_reachable") == {"one": 1, "two": 0})


def test_schemas_of_one_postgres_database_are_outboxes_of_their_own(
    cli: Cli, tmp_path: Path, postgres_url: str
) -> None:
    shops = {}
    for name in ("tenant_a", "tenant_b"):
        engine = create_engine(postgres_url)
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        engine.dispose()
        url = make_url(postgres_url).update_query_dict({"options": f"-csearch_path={name}"})
        shops[name] = Shop.made(url.render_as_string(hide_password=False), f"embedded:///{tmp_path / name}.log")
    with cli.started(*served(cli, **shops)) as relay:
        shops["tenant_a"].place(10)
        shops["tenant_b"].place(20)
        relay.until(lambda: (sent(shops["tenant_a"]), sent(shops["tenant_b"])) == (10, 20))


def test_databases_of_one_mysql_server_are_outboxes_of_their_own(
    cli: Cli, tmp_path: Path, mysql_url: str, mariadb_url: str
) -> None:
    shops = {
        "one": Shop.made(mysql_url, f"embedded:///{tmp_path}/one.log"),
        "two": Shop.made(mariadb_url, f"embedded:///{tmp_path}/two.log"),
    }
    with cli.started(*served(cli, **shops)) as relay:
        for shop in shops.values():
            shop.place(10)
        relay.until(lambda: all(sent(shop) == 10 for shop in shops.values()))


def test_processes_and_outboxes_go_together(cli: Cli, tmp_path: Path) -> None:
    one, two = sqlite_shop(tmp_path, "one"), sqlite_shop(tmp_path, "two")
    with cli.started(*served(cli, one=one, two=two), "--processes", "2") as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        assert get(relay, "/metrics")[1].count("pillarbox_relay_live{") == 4
        one.place(10)
        two.place(10)
        relay.until(lambda: (sent(one), sent(two)) == (10, 10))


def test_draining_several_ends_with_what_is_left_of_all(cli: Cli, tmp_path: Path) -> None:
    one, two = sqlite_shop(tmp_path, "one"), sqlite_shop(tmp_path, "two")
    one.place(3)
    two.place(4)
    command = served(cli, one=one, two=two)
    ended = cli.run(command[0], "--until-empty", "--json")
    assert (ended.code, ended.json["sent"], ended.json["left"]) == (0, 7, 0)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[outboxes.shop]\nbroker = "embedded:///x"', "outboxes.shop.database"),
        ('[outboxes.shop]\ndatabse = "sqlite:///x"', "Did you mean"),
        ('[outboxes."Big Shop"]\ndatabase = "sqlite:///x"', "outboxes"),
        ('[outboxes]\nshop = "sqlite:///x"', "Write [outboxes.shop]"),
        ('[outboxes.shop]\ndatabase = "sqlite:///x"', "No broker is given"),
        ('[outboxes.shop]\ndatabase = "nonsense"\nbroker = "embedded:///x"', "PB-002"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_at_the_start(cli: Cli, table: str, said: str) -> None:
    (cli.folder / "pillarbox.toml").write_text(table)
    ended = cli.run("relay")
    assert ended.code == 3, ended.err
    ended.says(said)


def test_outboxes_can_be_named_in_the_environment_and_are_shown_masked(cli: Cli) -> None:
    env = {
        "PILLARBOX_OUTBOXES__SHOP__DATABASE": "mysql://app:geheim@db/shop",
        "PILLARBOX_OUTBOXES__SHOP__BROKER": "amqp://mq",
    }
    shown = cli.run("config", "show", env=env)
    assert shown.code == 0, shown.err
    assert "outboxes.shop.database" in shown.out
    assert "mysql://app:***@db/shop" in shown.out
    assert "no setting" not in shown.err
    assert "geheim" not in shown.out + shown.err
