"""`pillarbox dead`: look at what was given up, and send it again under the same event id, on the record."""

import os
import subprocess

import pytest

from .events import Shop
from .processes import COMMAND, Inline, environment

Graves = tuple[Shop, dict[str, list[str]]]


@pytest.fixture
def graves(shop: Shop) -> Graves:
    """Dead letters of three types."""
    ids = {
        name: shop.place(4, event_type=name, to=f"to-{name}") for name in ("order.created", "order.paid", "mail.sent")
    }
    shop.kill_all("unroutable: [bold] no such exchange")
    return shop, ids


def test_dead_letters_are_listed_in_pages_with_their_reason(inline: Inline, graves: Graves) -> None:
    shop, ids = graves
    first = inline.run("dead", "list", "--limit", "8", "--json", env=shop.env).json
    second = inline.run("dead", "list", "--limit", "8", "--after", first["next"], "--json", env=shop.env).json
    letters = first["dead_letters"] + second["dead_letters"]
    assert [one["event_id"] for one in letters] == [event_id for group in ids.values() for event_id in group]
    assert second["next"] is None
    assert letters[0]["event_type"] == "order.created"
    assert letters[0]["destination"] == "to-order.created"
    assert (letters[0]["attempts"], letters[0]["replays"]) == (3, 0)

    table = inline.run("dead", "list", "--type", "order.paid", env=shop.env).out
    assert table.count("order.paid") >= 4
    assert "mail.sent" not in table
    assert "unroutable: [bold] no such exchange" in table
    assert inline.run("dead", "list", "--error", "nonsense", env=shop.env).out == "No dead letters.\n"


def test_show_prints_the_payload_and_the_history(inline: Inline, graves: Graves) -> None:
    shop, ids = graves
    one = ids["mail.sent"][2]
    assert inline.run("dead", "replay", one, "--by", "anna", "--reason", "exchange made", env=shop.env).code == 0
    shop.kill_all("unroutable: still not there")

    shown = inline.run("dead", "show", one, "--json", env=shop.env).json
    assert shown["message"]["payload"] == '{"n":2}'
    assert shown["letters"][0]["replays"] == 1
    assert shown["letters"][0]["error"] == "unroutable: still not there"
    assert shown["replays"][0]["replayed_by"] == "anna"
    assert shown["replays"][0]["error"] == "unroutable: [bold] no such exchange"

    text = inline.run("dead", "show", one, env=shop.env).out
    assert all(part in text for part in (one, '{"n":2}', "anna", "exchange made", "[bold]"))

    refused = inline.run("dead", "show", "0197c2a4-7a5e-7c1b-9d3e-0f6a1b2c3d4e", env=shop.env)
    assert refused.code == 1
    refused.says("[PB-050]", "pillarbox dead list")


def test_replaying_one_type_of_many_keeps_ids_and_leaves_the_others(inline: Inline, graves: Graves) -> None:
    """C071: list, count first, replay by filter, audit entry, attempts reset."""
    shop, ids = graves
    counted = inline.run("dead", "replay", "--type", "order.paid", "--dry-run", "--json", env=shop.env)
    assert counted.json == {"matched": 4, "replayed": 0, "dry_run": True, "not_dead": []}

    done = inline.run("dead", "replay", "--type", "order.paid", "--yes", "--reason", "route fixed", env=shop.env)
    assert done.code == 0
    assert done.out == "4 of 4 dead letters will be sent again.\n"

    ready = shop.rows("SELECT event_id, attempts FROM outbox_ready JOIN outbox_event USING (id) ORDER BY id")
    assert ready == [(event_id, 0) for event_id in ids["order.paid"]]
    assert len(shop.rows("SELECT 1 FROM outbox_parked WHERE state = 'DEAD'")) == 8
    audit = shop.rows("SELECT DISTINCT reason, attempts, error FROM outbox_replay")
    assert audit == [("route fixed", 3, "unroutable: [bold] no such exchange")]
    assert all("@" in str(by) for (by,) in shop.rows("SELECT replayed_by FROM outbox_replay"))


def test_a_choice_is_confirmed_and_where_nobody_can_answer_that_is_a_usage_error(
    inline: Inline, graves: Graves
) -> None:
    shop, _ = graves
    refused = inline.run("dead", "replay", "--all", env=shop.env)
    assert refused.code == 2
    refused.says("12 dead letters match", "--yes")
    assert shop.rows("SELECT 1 FROM outbox_replay") == []


@pytest.mark.parametrize("arguments", [[], ["--all", "--type", "x"], ["some-id", "--all"]], ids=" ".join)
def test_ids_filters_and_all_are_three_different_ways_to_choose(
    inline: Inline, shop: Shop, arguments: list[str]
) -> None:
    assert inline.run("dead", "replay", *arguments, env=shop.env).code == 2


def test_ids_that_are_not_dead_are_named_and_the_others_replayed(inline: Inline, graves: Graves) -> None:
    shop, ids = graves
    one = ids["order.paid"][0]
    done = inline.run("dead", "replay", one, one, "not-an-id", env=shop.env)
    assert done.code == 1
    assert done.out == "1 of 1 dead letter will be sent again.\n"
    done.says("not dead: not-an-id")


def test_when_nothing_matches_the_answer_is_no(inline: Inline, shop: Shop) -> None:
    done = inline.run("dead", "replay", "--all", "--yes", env=shop.env)
    assert (done.code, done.out) == (1, "No dead letter matches.\n")


@pytest.mark.parametrize("database_name", ["mysql", "mariadb102", "postgres"], indirect=True)
def test_replayed_letters_are_sent_by_the_next_relay_on_each_server(inline: Inline, database_url: str) -> None:
    """C072: a replay is honoured at once, whatever relays died before."""
    shop = Shop.made(database_url, f"embedded:///{inline.folder / 'log.db'}")
    shop.place(300)
    shop.kill_all()
    assert inline.run("dead", "replay", "--error", "nobody wants", "--yes", "--rate", "0", env=shop.env).code == 0
    drained = inline.run("relay", "--until-empty", "--json", env=shop.env)
    assert (drained.code, drained.json["sent"], drained.json["left"]) == (0, 300, 0), drained.err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="pseudo-terminals: POSIX only")
@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 12), (b"y\n", 0, 0)])
def test_on_a_terminal_it_asks_first_and_shows_its_progress(
    graves: Graves, answer: bytes, code: int, left: int
) -> None:
    shop, _ = graves
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*COMMAND, "dead", "replay", "--all"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(shop.env)
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        try:
            while chunk := os.read(ours, 4096):
                said += chunk
        except OSError:  # Linux: the other end was closed
            pass
        assert process.wait(20) == code
    os.close(ours)
    assert b"Replay 12 dead letters?" in said
    assert (b"replaying" in said) == (code == 0)
    assert len(shop.rows("SELECT 1 FROM outbox_parked WHERE state = 'DEAD'")) == left
