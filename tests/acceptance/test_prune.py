"""`pillarbox prune` as a user meets it."""

import json
import signal
import time
from pathlib import Path

import pytest

from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.testing.conformance.store_world import all_sent

from .events import Shop
from .processes import Cli, Inline

ARCHIVE = """
import json
def store(events):
    with open("archive.jsonl", "a") as file:
        for event in events:
            file.write(json.dumps([event.message.event_id, [one.state for one in event.deliveries]]) + "\\n")
def full(events):
    raise OSError("the bucket is full")
not_a_function = 7
"""


def sent_long_ago(shop: Shop, count: int) -> list[str]:
    ids = shop.place(count)
    store = RowLeaseStore(relay_engine(shop.database), relay_id="r", lease=60)
    while (claim := store.claim(1000)).deliveries:
        store.settle(all_sent(claim.token, claim.deliveries))
    store.close()
    shop.execute("UPDATE outbox_receipt SET sent_at = '2020-01-01 00:00:00.000'")
    shop.execute("UPDATE outbox_event SET recorded_at = '2020-01-01 00:00:00.000'")
    return ids


def events(shop: Shop) -> int:
    return int(str(shop.rows("SELECT COUNT(*) FROM outbox_event")[0][0]))


def test_a_dry_run_counts_by_state_and_age_and_prune_does_it(shop: Shop, inline: Inline) -> None:
    sent_long_ago(shop, 30)
    shop.place(5)
    found = inline.run("prune", "--dry-run", "--batch", "8", "--json", env=shop.env).json
    assert (found["events"], found["batches"]) == (30, 4)
    assert found["states"]["SENT"]["oldest_age"] > 86_400
    assert found["states"]["PENDING"]["would_go"] == 0
    assert "30 events would go, in 1 batch;" in inline.run("prune", "--dry-run", env=shop.env).out
    assert events(shop) == 35
    done = inline.run("prune", "--json", env=shop.env)
    assert (done.code, done.json["removed"], done.json["finished"]) == (0, 30, True)
    assert events(shop) == 5


def test_nothing_is_removed_that_is_younger_than_keep(shop: Shop, inline: Inline) -> None:
    sent_long_ago(shop, 3)
    assert inline.run("prune", "--keep", "100000d", "--json", env=shop.env).code == 3  # more than a century
    assert inline.run("prune", "--keep", "30000d", "--json", env=shop.env).json["removed"] == 0
    assert inline.run("prune", "--keep", "52w", "--json", env=shop.env).json["removed"] == 2


def test_once_removes_one_batch(shop: Shop, inline: Inline) -> None:
    sent_long_ago(shop, 30)
    said = inline.run("prune", "--once", "--batch", "10", env=shop.env)
    assert (said.code, events(shop)) == (0, 20)
    assert "10 events removed" in said.out
    assert "There may be more." in said.out


def test_settings_come_from_the_file(shop: Shop, inline: Inline, tmp_path: Path) -> None:
    sent_long_ago(shop, 30)
    (tmp_path / "pillarbox.toml").write_text(
        '[retention]\nkeep = "30d"\nbatch = 7\nrate = "10000/s"\n', encoding="utf-8"
    )
    assert inline.run("prune", "--once", "--json", env=shop.env).json["removed"] == 7


def test_dead_events_go_only_when_asked_for(shop: Shop, inline: Inline) -> None:
    shop.place(4)
    shop.kill_all()
    shop.execute("UPDATE outbox_parked SET error_at = '2020-01-01 00:00:00.000'")
    assert inline.run("prune", "--json", env=shop.env).json["removed"] == 0
    assert inline.run("prune", "--keep-dead", "30d", "--json", env=shop.env).json["removed"] == 3
    assert events(shop) == 1


def test_a_function_of_yours_archives(shop: Shop, inline: Inline, tmp_path: Path) -> None:
    (tmp_path / "keeping.py").write_text(ARCHIVE, encoding="utf-8")
    ids = sent_long_ago(shop, 10)
    refused = inline.run("prune", "--archive", "keeping:full", env=shop.env).says("PB-071", "the bucket is full")
    assert (refused.code, events(shop)) == (1, 10)
    inline.run("prune", "--archive", "keeping:not_a_function", env=shop.env).says("PB-051")
    assert inline.run("prune", "--archive", "keeping:store", "--json", env=shop.env).json["removed"] == 9
    lines = [json.loads(line) for line in (tmp_path / "archive.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [[one, ["SENT"]] for one in ids[:-1]]


def test_an_archive_table_is_made_when_it_is_missing(shop: Shop, inline: Inline) -> None:
    ids = sent_long_ago(shop, 10)
    inline.run("prune", "--archive", "table", env=shop.env)
    inline.run("prune", "--archive", "table", env=shop.env)
    assert [row[0] for row in shop.rows("SELECT event_id FROM outbox_archive ORDER BY id")] == ids[:-1]


@pytest.mark.parametrize(
    "arguments",
    [["--partitions", "--once"], ["--partitions", "--archive", "table"], ["--partitions", "--keep-dead", "1d"]],
)
def test_what_does_not_go_together_is_refused(shop: Shop, inline: Inline, arguments: list[str]) -> None:
    assert inline.run("prune", *arguments, env=shop.env).code == 2


def test_bad_values_and_tables_without_partitions_are_refused(shop: Shop, inline: Inline) -> None:
    inline.run("prune", "--keep", "soon", env=shop.env).says("PB-001", "retention.keep")
    inline.run("prune", "--archive", "nowhere", env=shop.env).says("PB-001", "retention.archive")
    assert inline.run("prune", "--partitions", env=shop.env).says("PB-072").code == 3


def test_a_second_pruner_leaves_and_one_that_is_killed_is_followed_by_the_next(shop: Shop, cli: Cli) -> None:
    sent_long_ago(shop, 400)
    with cli.started("prune", "--batch", "10", "--rate", "50/s", env=shop.env) as first:
        first.until(lambda: events(shop) < 380)
        assert cli.run("prune", env=shop.env).says("PB-070").code == 4
        first.process.kill()
        first.process.wait(10)
    left = events(shop)
    assert left > 10
    assert cli.run("prune", "--json", env=shop.env).json["removed"] == left - 1


def test_sigterm_ends_it_after_its_batch(shop: Shop, cli: Cli) -> None:
    sent_long_ago(shop, 400)
    with cli.started("prune", "--batch", "10", "--rate", "5/s", "--json", env=shop.env) as pruner:
        pruner.until(lambda: events(shop) < 400)
        began = time.monotonic()
        pruner.process.send_signal(signal.SIGTERM)
        ended = pruner.ended()
    assert time.monotonic() - began < 5
    assert ended.code == 0
    assert ended.json["removed"] == 400 - events(shop)
    assert not ended.json["finished"]
