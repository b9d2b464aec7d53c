"""`pillarbox inbox prune` as a user meets it."""

from pillarbox.store.engines import relay_engine
from pillarbox.store.inbox import mark_many

from .events import Shop
from .processes import Inline


def marks(shop: Shop, count: int) -> None:
    engine = relay_engine(shop.database)
    with engine.begin() as connection:
        mark_many(connection, "stock", [f"e-{number}" for number in range(count)])
    engine.dispose()
    shop.execute("UPDATE inbox_event SET applied_at = '2020-01-01 00:00:00.000'")


def test_a_dry_run_counts_and_prune_removes(shop: Shop, inline: Inline) -> None:
    marks(shop, 30)
    assert "30 marks and 0 effects would be removed" in inline.run("inbox", "prune", "--dry-run", env=shop.env).out
    assert shop.rows("SELECT COUNT(*) FROM inbox_event") == [(30,)]
    done = inline.run("inbox", "prune", "--batch", "20", "--rate", "10000/s", "--json", env=shop.env)
    assert (done.code, done.json["removed"], done.json["consumers"], done.json["finished"]) == (
        0,
        30,
        {"stock": 30},
        True,
    )
    assert "0 marks and 0 effects removed" in inline.run("inbox", "prune", env=shop.env).out


def test_a_time_below_the_floor_and_one_that_is_none_are_refused(shop: Shop, inline: Inline) -> None:
    refused = inline.run("inbox", "prune", "--keep", "5d", env=shop.env)
    assert refused.code == 3
    assert "may deliver an event again for 7 days" in refused.err
    assert inline.run("inbox", "prune", "--keep", "5d", "--horizon", "2d", env=shop.env).code == 0
    assert inline.run("inbox", "prune", "--keep", "soon", env=shop.env).code == 2


def test_a_database_without_inbox_is_told(shop: Shop, inline: Inline) -> None:
    shop.execute("DROP TABLE inbox_event")
    refused = inline.run("inbox", "prune", env=shop.env)
    assert "PB-006" in refused.err
