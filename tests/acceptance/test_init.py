"""`pillarbox init`: creates, migrates, prints."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import inspect

from pillarbox.store.engines import relay_engine

from .processes import Cli, Inline


def tables(url: str) -> set[str]:
    engine = relay_engine(url)
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_init_says_what_it_did_and_the_second_time_that_nothing_was_to_do(inline: Inline, database_url: str) -> None:
    first = inline.run("init", env={"PILLARBOX_DATABASE": database_url})
    assert first.code == 0, first.err
    assert "Created the outbox" in first.out
    assert "Created the inbox" in first.out
    assert {"outbox_event", "outbox_ready", "inbox_event"} <= tables(database_url)

    second = inline.run("init", "--json", env={"PILLARBOX_DATABASE": database_url})
    assert second.code == 0
    assert all("up to date" in sentence for sentence in second.json["done"])


def test_init_of_a_consumers_database_makes_only_the_inbox(inline: Inline, sqlite_url: str) -> None:
    assert inline.run("init", "--part", "inbox", "--database", sqlite_url).code == 0
    assert "inbox_event" in tables(sqlite_url)
    assert not any(name.startswith("outbox") for name in tables(sqlite_url))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_init_sql_prints_the_ddl_of_a_dialect_without_a_database(inline: Inline, dialect: str) -> None:
    printed = inline.run("init", "--sql", "--dialect", dialect)
    assert printed.code == 0
    assert "CREATE TABLE" in printed.out
    assert "outbox_event" in printed.out
    assert "inbox_event" in printed.out


def test_init_sql_takes_the_dialect_from_the_url_and_does_not_connect(inline: Inline) -> None:
    printed = inline.run("init", "--sql", "--part", "inbox", "--json", "--database", "mysql://u:p@127.0.0.1:1/db")
    assert printed.code == 0
    assert printed.json["dialect"] == "mysql"
    assert "InnoDB" in printed.json["sql"]
    assert "outbox_event" not in printed.json["sql"]


@pytest.mark.parametrize("database_name", ["sqlite", "mysql"], indirect=True)
def test_two_inits_at_once_both_succeed_and_one_of_them_created(cli: Cli, database_url: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: cli.run("init", env={"PILLARBOX_DATABASE": database_url}), range(2)))
    assert [one.code for one in done] == [0, 0], [one.err for one in done]
    assert sum("Created the outbox" in one.out for one in done) == 1


def test_an_outbox_is_taken_back_for_an_older_release_and_forward_again(inline: Inline, sqlite_url: str) -> None:
    env = {"PILLARBOX_DATABASE": sqlite_url}
    assert inline.run("init", env=env).code == 0
    back = inline.run("init", "--downgrade", "0001", "--json", env=env)
    assert (back.code, back.json["done"]) == (0, ["Took the outbox back from 0002 to 0001."])
    assert "outbox_partition" not in tables(sqlite_url)
    assert inline.run("status", env=env).code == 5
    assert "Migrated the outbox from 0001 to 0002" in inline.run("init", env=env).out
    assert inline.run("status", env=env).code == 0


def test_the_upgrade_alone_can_be_printed_and_options_that_do_not_fit_are_refused(inline: Inline) -> None:
    printed = inline.run("init", "--sql", "--dialect", "mysql", "--since", "0001")
    assert printed.code == 0
    assert "CREATE TABLE IF NOT EXISTS outbox_lane" in printed.out
    assert "outbox_receipt (" not in printed.out
    assert inline.run("init", "--since", "0001").code == 2
    assert inline.run("init", "--sql", "--downgrade", "0001").code == 2
