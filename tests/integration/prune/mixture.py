"""Events in every state there is, of every age, put straight into the tables; and what retention may take of them."""

import random
from dataclasses import dataclass, field

from pillarbox.event.destination import Topic
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.testing.conformance.store_world import event
from tests.sql_outbox import EARLIER, SqlOutbox

DAY = 86_400
NOW = {"postgresql": "clock_timestamp()", "mysql": "UTC_TIMESTAMP(6)", "sqlite": "'now'"}
WORK = ("READY", "LEASED", "RETRY", "SCHEDULED", "HELD", "DEAD", "BURIED")


@dataclass
class Planned:
    """One event: for each destination SENT or what work it has (None: neither), and how many days ago that was."""

    deliveries: list[str | None]
    days: list[int]
    also_ready: bool = False  # sent, and put into the queue again by hand
    unreadable: bool = False  # its list of destinations is no JSON
    no_event: bool = False  # only its receipts are there
    number: int = 0
    key: str = field(default="")

    def may_go(self, keep: int, keep_dead: int | None) -> bool:
        """By the rule as the documentation says it."""
        if self.also_ready or self.unreadable or self.no_event or None in self.deliveries:
            return False
        for state, days in zip(self.deliveries, self.days, strict=True):
            if state == "SENT" and days >= keep:
                continue
            if state in ("DEAD", "BURIED") and keep_dead is not None and days >= keep_dead:
                continue
            return False
        return True


def mixture(count: int, seed: int) -> list[Planned]:
    chance = random.Random(seed)
    return [_one(chance) for _ in range(count)]


def _one(chance: random.Random) -> Planned:
    width = chance.choice([1, 1, 1, 2, 3])
    days = [chance.choice([1, 3, 8, 20, 60]) for _ in range(width)]
    kind = chance.random()
    if kind < 0.45:
        planned = Planned(["SENT"] * width, days)
        planned.also_ready = chance.random() < 0.1
        planned.unreadable = chance.random() < 0.1
        planned.no_event = chance.random() < 0.1
        return planned
    if kind < 0.65:
        return Planned([chance.choice(["SENT", "DEAD", "BURIED"]) for _ in days], days)
    return Planned([chance.choice(["SENT", None, *WORK]) for _ in days], days)


def put(outbox: SqlOutbox, planned: list[Planned]) -> None:
    """Write them, in order; their numbers are filled in."""
    for one in planned:
        one.key = f"key-{id(one)}"
        more = [Topic(f"more-{n}") for n in range(1, len(one.deliveries))]
        [one.number] = outbox.add([event(key=one.key)], more)
    with outbox.engine.begin() as connection:
        say = connection.exec_driver_sql
        say("DELETE FROM outbox_ready")
        say(f"UPDATE outbox_event SET recorded_at = {_ago(outbox, 100)}")
        for one in planned:
            for dest, (state, days) in enumerate(zip(one.deliveries, one.days, strict=True)):
                _put_delivery(outbox, say, one, dest, state, days)
            if one.also_ready:
                _put_delivery(outbox, say, one, 0, "READY", 0)
            if one.unreadable:
                say(f"UPDATE outbox_event SET more_destinations = '[[' WHERE id = {one.number}")
            if one.no_event:
                say(f"DELETE FROM outbox_event WHERE id = {one.number}")


def _put_delivery(outbox, say, one: Planned, dest: int, state: str | None, days: int) -> None:  # type: ignore[no-untyped-def]
    lane = lane_of(one.key)
    partition = partition_of(lane)
    moment = _ago(outbox, days)
    if state == "SENT":
        say(
            "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token)"
            f" VALUES ({one.number}, {dest}, {moment}, 'relay', 1)"
        )
    elif state in ("READY", "LEASED"):
        until = _ago(outbox, -1) if state == "LEASED" else "'1970-01-01'"
        say(
            "INSERT INTO outbox_ready (partition_no, id, dest, lane, leased_until)"
            f" VALUES ({partition}, {one.number}, {dest}, {lane}, {until})"
        )
    elif state is not None:
        due = moment if state in ("RETRY", "SCHEDULED") else "NULL"
        say(
            "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, error, error_at)"
            f" VALUES ({partition}, {lane}, {one.number}, {dest}, '{state}', {due}, 1, 'broken', {moment})"
        )


def _ago(outbox: SqlOutbox, days: int) -> str:
    if outbox.dialect == "sqlite":
        return f"strftime('%Y-%m-%d %H:%M:%f', 'now', '{-days} days', '-1 seconds')"
    return EARLIER[outbox.dialect].format(column=NOW[outbox.dialect], seconds=days * DAY + 1)


def everything(outbox: SqlOutbox) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables."""
    tables = {
        "outbox_event": "id, event_id, more_destinations",
        "outbox_ready": "*",
        "outbox_parked": "*",
        "outbox_receipt": "*",
        "outbox_lane": "*",
        "outbox_replay": "*",
    }
    with outbox.engine.begin() as connection:
        return {
            table: sorted((tuple(row) for row in connection.exec_driver_sql(f"SELECT {columns} FROM {table}")), key=str)
            for table, columns in tables.items()
        }


def event_ids(outbox: SqlOutbox) -> set[int]:
    with outbox.engine.begin() as connection:
        return set(connection.exec_driver_sql("SELECT id FROM outbox_event").scalars())


def receipt_ids(outbox: SqlOutbox) -> set[int]:
    with outbox.engine.begin() as connection:
        return set(connection.exec_driver_sql("SELECT id FROM outbox_receipt").scalars())
