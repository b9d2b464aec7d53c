"""Many rows parked in one settlement: few statements, each below what a server takes at once."""

from itertools import count, islice

from sqlalchemy import event

from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.ports import Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from tests.crash.ordered_lab import Lab
from tests.integration.ordered.working import settings

EVENTS = 1_000
LONG = 200
SMALL_PACKET = 1024 * 1024


def test_a_thousand_events_are_parked_by_few_statements_and_long_reasons_by_small_ones(lab: Lab) -> None:
    reason = "'\\ü€𝄞" * 400  # 2,000 characters, the most that is kept
    others = islice((key for key in map(str, count()) if place(key) == place("k")), LONG)
    lab.add(*(["k"] * (EVENTS - LONG)), *others)  # of one partition, and so in one round
    broker = MemoryPublisher(lambda message: Rejected(reason if message.key != "k" else "no", permanent=True))
    engine = relay_engine(lab.world.url, pool_size=2)
    parked: list[int] = []
    event.listen(engine, "after_cursor_execute", lambda c, cursor, sql, *rest: parked.extend(sizes(cursor, sql)))
    OrderedRelay(PartitionStore(engine, relay_id="a", lease=3.0), broker, settings()).run(until_empty=True)
    states = dict(lab.rows("SELECT state, COUNT(*) FROM outbox_parked GROUP BY state"))
    assert states == {"DEAD": LONG + 1, "HELD": EVENTS - LONG - 1}
    assert lab.one("SELECT MAX(CHAR_LENGTH(error)) FROM outbox_parked") >= 1_900
    if not lab.world.is_postgres:
        assert max(parked) < SMALL_PACKET
        assert len(parked) <= 4


def place(key: str) -> int:
    return partition_of(lane_of(key))


def sizes(cursor: object, sql: str) -> list[int]:
    """Bytes of the statement as it was sent, if it parked rows."""
    sent = getattr(cursor, "_executed", None)  # PyMySQL's
    if not sql.startswith("INSERT INTO outbox_parked") or sent is None:
        return []
    return [len(sent if isinstance(sent, bytes) else sent.encode())]
