"""`pillarbox held` and `dead bury`: a key whose first event was given up, and what an operator does about it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pillarbox import Event, Outbox
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Inline


class HeldShop(NamedTuple):
    """The events of order 7: the first is dead, two wait behind it."""

    shop: Shop
    ids: list[str]

    @property
    def env(self) -> dict[str, str]:
        return self.shop.env

    def states(self) -> list[object]:
        return [row[0] for row in self.shop.rows("SELECT status FROM outbox_status ORDER BY id")]

    def offsets(self) -> list[str]:
        """The event ids as they stand in the log."""
        sql = "SELECT event_id FROM outbox_receipt JOIN outbox_event USING (id) ORDER BY broker_offset"
        return [str(row[0]) for row in self.shop.rows(sql)]


@pytest.fixture
def held(shop: Shop) -> HeldShop:
    engine = relay_engine(shop.database)
    outbox = Outbox(bind=engine)
    with engine.begin() as connection:
        drafts = [Event({"n": n}, type="order.created", aggregate=("order", 7)) for n in range(3)]
        ids = [str(one.id) for one in outbox.add_all(connection, drafts, to="orders")]
    engine.dispose()
    lane, target = lane_of("7"), lane_of("orders")
    head = int(str(shop.rows("SELECT MIN(id) FROM outbox_event")[0][0]))
    for sql in (
        "UPDATE outbox_meta SET lease = 'partition'",
        "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, attempts, target, error, error_at)"
        f" SELECT partition_no, lane, id, dest, CASE WHEN id = {head} THEN 'DEAD' ELSE 'HELD' END, 3, {target},"
        " 'unroutable: [no] such exchange', '2026-01-01 00:00:00.000' FROM outbox_ready",
        "DELETE FROM outbox_ready",
        "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
        f" VALUES ({partition_of(lane)}, {lane}, {target}, 'dead', {head}, '2026-01-01 00:00:00.000', 'orders',"
        " 'unroutable: [no] such exchange')",
    ):
        shop.execute(sql)
    return HeldShop(shop, ids)


def drain(inline: Inline, shop: Shop) -> int:
    done = inline.run("relay", "--until-empty", "--timeout", "30", "--json", env=shop.env)
    return int(done.json["sent"])


def test_what_is_held_shows_in_the_status_and_in_the_list_with_its_reason(inline: Inline, held: HeldShop) -> None:
    counts = inline.run("status", "--json", env=held.env).json
    assert (counts["counts"]["HELD"], counts["counts"]["DEAD"], counts["waiting"]) == (2, 1, 2)
    assert "wait behind another event of their key or destination" in inline.run("status", env=held.env).out
    found = inline.run("held", "list", "--json", env=held.env).json
    (one,) = found["held"]
    assert found["total"] == 1
    assert {name: one[name] for name in ("key", "destination", "mode", "head_event_id", "waiting", "due_at")} == {
        "key": "7",
        "destination": "orders",
        "mode": "dead",
        "head_event_id": held.ids[0],
        "waiting": 2,
        "due_at": None,
    }
    table = inline.run("held", "list", env=held.env).out
    assert all(part in table for part in (held.ids[0], "orders", "dead", "[no] such exchange"))
    assert inline.run("held", "list", "--destination", "others", env=held.env).out == "Nothing is held.\n"


def test_a_replayed_head_is_sent_first_and_the_others_follow_in_order(inline: Inline, held: HeldShop) -> None:
    """C071, C072: the key goes on by the operator's word, and in order."""
    assert drain(inline, held.shop) == 0
    assert inline.run("dead", "replay", held.ids[0], env=held.env).code == 0
    assert drain(inline, held.shop) == 3
    assert held.offsets() == held.ids
    assert inline.run("held", "list", "--json", env=held.env).json["total"] == 0


def test_released_the_others_overtake_the_dead_one(inline: Inline, held: HeldShop) -> None:
    released = inline.run("held", "release", "7", env=held.env)
    assert (released.code, released.out) == (0, "1 held key was released.\n")
    listed = inline.run("held", "list", env=held.env).out  # no relay has come by yet
    assert "drain" in listed
    assert "let go" in listed
    assert "unroutable" not in listed
    assert drain(inline, held.shop) == 2
    assert inline.run("held", "list", env=held.env).out == "Nothing is held.\n"
    assert held.states() == ["DEAD", "SENT", "SENT"]
    assert held.offsets() == held.ids[1:]


def test_a_whole_destination_is_released_at_once(inline: Inline, held: HeldShop) -> None:
    assert inline.run("held", "release", "--all-of", "orders", "--json", env=held.env).json == {"released": 1}
    assert drain(inline, held.shop) == 2


@pytest.mark.parametrize("command", ["skip", "bury"])
def test_skipped_or_buried_the_head_is_kept_for_the_record_and_the_others_go(
    inline: Inline, held: HeldShop, command: str
) -> None:
    words = ("held", "skip", "7") if command == "skip" else ("dead", "bury", held.ids[0])
    done = inline.run(*words, "--reason", "order was cancelled", "--by", "anna", env=held.env)
    assert done.code == 0, done.err
    assert drain(inline, held.shop) == 2
    assert held.states() == ["BURIED", "SENT", "SENT"]
    audit = held.shop.rows("SELECT replayed_by, reason, attempts, error FROM outbox_replay")
    assert audit == [("anna", "buried: order was cancelled", 3, "unroutable: [no] such exchange")]
    assert "given up for good" in inline.run("status", env=held.env).out
    assert inline.run("dead", "replay", held.ids[0], env=held.env).code == 1
    shown = inline.run("dead", "show", held.ids[0], "--json", env=held.env).json
    assert [one["state"] for one in shown["letters"]] == ["BURIED"]
    assert shown["replays"][0]["replayed_by"] == "anna"
    assert "buried" in inline.run("dead", "show", held.ids[0], env=held.env).out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("held", "release"), 2),
        (("held", "release", "7", "--all-of", "orders"), 2),
        (("held", "release", "--all-of", "orders", "--destination", "x"), 2),
        (("held", "skip", "7"), 2),
        (("dead", "bury", "some-id"), 2),
        (("held", "release", "nobody"), 1),
        (("held", "skip", "nobody", "--reason", "x"), 1),
        (("dead", "bury", "nobody", "--reason", "x"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_what_is_not_there_is_answered_with_no_and_what_makes_no_sense_refused(
    inline: Inline, shop: Shop, words: tuple[str, ...], code: int
) -> None:
    assert inline.run(*words, env=shop.env).code == code
