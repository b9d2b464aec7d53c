"""`pillarbox status`: what is where."""

import json

from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Cli, Inline


def test_status_counts_by_state_and_tells_the_age_of_the_oldest(inline: Inline, shop: Shop) -> None:
    empty = inline.run("status", "--json", env=shop.env).json
    assert empty["counts"] == {"PENDING": 0, "PROCESSING": 0, "RETRY": 0, "SENT": 0, "DEAD": 0}
    assert (empty["waiting"], empty["oldest_age_seconds"]) == (0, None)

    shop.place(3)
    shop.kill_all()
    shop.place(4)
    found = inline.run("status", "--json", env=shop.env).json
    assert (found["counts"]["PENDING"], found["counts"]["DEAD"], found["waiting"]) == (4, 3, 4)
    assert 0 <= found["oldest_age_seconds"] < 60

    table = inline.run("status", env=shop.env)
    assert table.code == 0
    assert "PENDING" in table.out
    assert "oldest unconfirmed" in table.out


def test_status_watch_follows_what_happens_until_it_is_interrupted(cli: Cli, shop: Shop) -> None:
    with cli.started("status", "--watch", "0.1", "--json", env=shop.env) as watching:
        watching.until(lambda: '"PENDING": 0' in watching.out)
        shop.place(2)
        watching.until(lambda: '"PENDING": 2' in watching.out)
        watching.interrupt()
        ended = watching.ended()
    assert ended.code == 130
    ended.says()
    assert all(json.loads(line) for line in ended.out.splitlines())


def test_status_watch_into_a_pipe_prints_one_table_after_the_other(cli: Cli, shop: Shop) -> None:
    with cli.started("status", "--watch", "0.1", env=shop.env) as watching:
        watching.until(lambda: watching.out.count("PENDING") >= 3)
        watching.interrupt()
        assert watching.ended().code == 130


def test_looking_at_a_database_takes_no_write_lock(inline: Inline, shop: Shop) -> None:
    engine = relay_engine(shop.database)
    with engine.begin():  # SQLite: holds the write lock
        assert inline.run("status", env=shop.env).code == 0
        assert inline.run("dead", "list", env=shop.env).code == 0
    engine.dispose()
