"""A table prefix goes before every name of an outbox and before nothing else."""

import pytest
from sqlalchemy import Table, UniqueConstraint

from pillarbox.errors import BadTablePrefix
from pillarbox.store.ddl import VERSION_TABLES, ddl
from pillarbox.store.engines import relay_engine
from pillarbox.store.naming import LONGEST, NAMES, PLAIN, Naming, naming_of, prefixed
from pillarbox.store.prune.archive import archive_metadata
from pillarbox.store.schema import outbox_metadata
from pillarbox.store.view import VIEW
from pillarbox.store.write import said

SHOP = Naming("shop_")


def names_of(table: Table) -> set[str]:
    unique = {str(one.name) for one in table.constraints if isinstance(one, UniqueConstraint)}
    return {table.name, *(str(one.name) for one in table.indexes), *unique}


def test_every_table_index_and_constraint_of_an_outbox_is_known() -> None:
    tables = [*outbox_metadata.tables.values(), *archive_metadata.tables.values()]
    found = set[str]().union(*map(names_of, tables))
    version = VERSION_TABLES["outbox"]
    assert {*found, VIEW, version, f"{version}_pkc", "outbox_ready_partition"} == NAMES


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_no_column_is_called_like_one_of_them(dialect: str) -> None:
    tables = [*outbox_metadata.tables.values(), *archive_metadata.tables.values()]
    assert not NAMES & {column.name for table in tables for column in table.c}
    script = ddl(dialect, ["outbox"], table_prefix="shop_")
    assert script.replace("shop_outbox_", "outbox_") == ddl(dialect, ["outbox"])
    assert script.count("outbox_") == script.count("shop_outbox_")


@pytest.mark.parametrize(
    ("sql", "translated"),
    [
        ("SELECT id FROM outbox_event", "SELECT id FROM shop_outbox_event"),
        ("outbox_event.id = `outbox_ready`.id", "shop_outbox_event.id = `shop_outbox_ready`.id"),
        ("'outbox_event'::regclass", "'shop_outbox_event'::regclass"),
        ("a.outbox_parked USE INDEX (outbox_parked_due)", "a.shop_outbox_parked USE INDEX (shop_outbox_parked_due)"),
        ("outbox_archive_delivery, outbox_archive", "shop_outbox_archive_delivery, shop_outbox_archive"),
        ("shop_outbox_event billing_outbox_event", "shop_outbox_event billing_outbox_event"),
        ("outbox_event_p1, my_outbox_event, outbox_events, inbox_event",) * 2,
    ],
)
def test_whole_names_are_translated_once(sql: str, translated: str) -> None:
    assert SHOP(sql) == translated
    assert SHOP(translated) == translated
    assert PLAIN(sql) is sql


def test_long_statements_are_translated_and_not_kept() -> None:
    values = ", ".join(["(?, ?)"] * 2_000)
    assert SHOP(f"INSERT INTO outbox_ready VALUES {values}") == f"INSERT INTO shop_outbox_ready VALUES {values}"


def test_a_statement_is_made_once_for_each_text() -> None:
    sql = "SELECT event_id FROM outbox_event WHERE id = ?"
    assert said(sql, "format", SHOP) == "SELECT event_id FROM shop_outbox_event WHERE id = %s"
    assert said(sql, "format", SHOP) is said(sql, "format", Naming("shop_"))
    assert said(sql, "format", PLAIN) == "SELECT event_id FROM outbox_event WHERE id = %s"


@pytest.mark.parametrize(
    "prefix", ["Shop_", "1shop", "_shop", "shop-", "shop.", "shöp_", "a" * (LONGEST + 1), "x; --", "a\n"]
)
def test_a_prefix_that_not_every_server_takes_is_refused(prefix: str) -> None:
    with pytest.raises(BadTablePrefix, match="PB-033"):
        Naming(prefix)


def test_the_longest_prefix_leaves_room_for_every_name_on_every_server() -> None:
    longest = Naming("a" * LONGEST)
    made_by_postgresql = {f"{name}_pkey" for name in (*outbox_metadata.tables, *archive_metadata.tables)}
    assert max(len(longest.prefix + name) for name in NAMES | made_by_postgresql) <= 63


def test_locks_of_two_outboxes_differ_and_one_without_prefix_keeps_the_known_ones() -> None:
    assert PLAIN.number(7) == 7
    assert len({Naming(one).number(7) for one in ("", "a_", "b_")}) == 3
    assert -(2**63) <= SHOP.number(7) < 2**63
    assert len({Naming(one).mysql_lock("pillarbox.") for one in ("", "a_", "b_")}) == 3


def test_an_engine_has_one_prefix() -> None:
    plain = relay_engine("sqlite:///none.db")
    shop = prefixed(plain, "shop_")
    assert (naming_of(plain).prefix, naming_of(shop).prefix) == ("", "shop_")
    assert prefixed(plain, "") is plain
    assert prefixed(shop, "shop_") is shop
    with pytest.raises(BadTablePrefix, match="another engine"):
        prefixed(shop, "billing_")
