"""What the partition lease's store does when the database fails it at each single statement."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from pillarbox.errors import DatabaseBusy
from pillarbox.ports import Delivery, OrderedSettled, OrderedSettlement, Span
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.testing.conformance.ordered_store_world import OrderedWorld, Owner, hold_on, set_aside
from pillarbox.testing.conformance.store_world import event as message
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_ordered import OrderedOutbox

pytestmark = pytest.mark.services
each_kind = pytest.mark.parametrize("shared", ["postgres", "mysql", "mariadb102"], indirect=True)
MOST_STATEMENTS = 40


@pytest.fixture(scope="module", params=DATABASES)
def shared(request: pytest.FixtureRequest) -> Iterator[OrderedOutbox]:
    with fresh_database(_need(request, request.param).url) as url:
        outbox = OrderedOutbox(url)
        yield outbox
        outbox.close()


@pytest.fixture
def outbox(shared: OrderedOutbox) -> OrderedOutbox:
    shared.empty()
    return shared


class Faults:
    """Does something to the store's connection at its n-th statement from now on, once."""

    def __init__(self, engine: Engine) -> None:
        self.left = 0
        self.act: Callable[[Connection], None] | None = None
        self.after = False
        self.heard: list[str] = []
        event.listen(engine, "before_cursor_execute", self._before)
        event.listen(engine, "after_cursor_execute", self._after)

    def arm(self, number: int, act: Callable[[Connection], None], *, after: bool = False) -> None:
        self.left, self.act, self.after, self.heard = number, act, after, []

    @property
    def fired(self) -> bool:
        return self.act is None

    def _before(self, connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        self.heard.append(statement)
        if not self.after:
            self._count(connection)

    def _after(self, connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        if self.after:
            self._count(connection)

    def _count(self, connection: Connection) -> None:
        if self.act is None:
            return
        self.left -= 1
        if self.left < 0:
            act, self.act = self.act, None
            act(connection)


class Place:
    """A relay whose connection can be broken."""

    def __init__(self, outbox: OrderedOutbox) -> None:
        self.outbox = outbox
        self.engine = relay_engine(outbox.url)
        store = PartitionStore(self.engine, relay_id="a", lease=60.0, pause=lambda _: None)
        outbox.ordered.append(store)
        store.enter(60.0)
        self.relay = Owner(store, 60.0)
        self.world = OrderedWorld(outbox)
        self.faults = Faults(self.engine)

    def kill(self, connection: Connection) -> None:
        """As an administrator, a failover or a firewall does: the server forgets the session."""
        driver = connection.connection.driver_connection
        with self.outbox.engine.begin() as other:
            if self.outbox.dialect == "postgresql":
                other.exec_driver_sql(f"SELECT pg_terminate_backend({driver.info.backend_pid}, 5000)")
            else:
                with suppress(DBAPIError):  # it is gone already: 1094
                    other.exec_driver_sql(f"KILL {driver.thread_id()}")
        if self.outbox.dialect != "postgresql":
            self._wait_until_gone(driver.thread_id())

    def _wait_until_gone(self, number: int) -> None:
        deadline = time.monotonic() + 5
        sql = f"SELECT 1 FROM information_schema.processlist WHERE id = {number}"
        while time.monotonic() < deadline:
            with self.outbox.engine.begin() as other:
                if other.exec_driver_sql(sql).first() is None:
                    return
            time.sleep(0.005)
        raise AssertionError("the connection would not die")

    def conflict(self, kind: str) -> Callable[[Connection], None]:
        """The driver's own error for a deadlock or a lock time-out."""

        def fail(connection: Connection) -> None:
            if self.outbox.dialect == "postgresql":
                import psycopg.errors as errors

                raise {"deadlock": errors.DeadlockDetected, "lock": errors.LockNotAvailable}[kind](kind)
            import pymysql

            raise pymysql.err.OperationalError({"deadlock": 1213, "lock": 1205}[kind], kind)

        return fail


def mixed_round(place: Place, number: int) -> tuple[OrderedSettlement, list[Delivery]]:
    """Something of everything."""
    key = f"key-{number}"
    place.outbox.add([message(key=key) for _ in range(3)] + [message(key=f"other-{n}") for n in range(20)])
    found = place.relay.read()
    first, second, third = [one for one in found if one.message.key == key]
    others = [one for one in found if one.message.key != key]
    settlement = place.relay.settlement(
        sent=[first, *others],
        aside=[set_aside(second, "RETRY", 600.0), set_aside(third, "HELD")],
        holds=[hold_on(second, "backoff", 600.0)],
    )
    return settlement, [*others, first, second, third]


def only_sent(place: Place, number: int) -> tuple[OrderedSettlement, list[Delivery]]:
    """The usual round."""
    place.outbox.add([message(key=f"other-{n}") for n in range(20)])
    found = place.relay.read()
    return place.relay.settlement(sent=found), found


def states_of(outbox: OrderedOutbox, deliveries: list[Delivery]) -> list[str]:
    states = outbox.states()
    return [states[one.key.id, one.key.dest] for one in deliveries]


@pytest.mark.parametrize("kind", ["kill", "kill after", "deadlock", "lock"])
@pytest.mark.parametrize("make", [mixed_round, only_sent])
@each_kind
def test_a_settlement_that_fails_at_any_statement_is_whole_in_the_end(
    outbox: OrderedOutbox, make: Any, kind: str
) -> None:
    """Before each statement and after it, the COMMIT's lost answer included: everything is written, and once."""
    place = Place(outbox)
    place.relay.acquire()
    for number in range(MOST_STATEMENTS):
        settlement, deliveries = make(place, number)
        act = place.kill if kind.startswith("kill") else place.conflict(kind)
        place.faults.arm(number, act, after=kind == "kill after")
        settled = place.relay.store.settle(settlement)
        assert settled == OrderedSettled(len(settlement.sent), len(settlement.aside)), place.faults.heard
        expected = ["SENT"] * len(settlement.sent) + ["RETRY", "HELD"][: len(settlement.aside)]
        assert states_of(outbox, deliveries) == expected, place.faults.heard
        assert place.relay.read() == []
        if not place.faults.fired:
            place.engine.dispose()
            return
    raise AssertionError("a settlement has more statements than that?")


@each_kind
def test_whatever_else_is_called_survives_one_lost_connection_at_any_statement(outbox: OrderedOutbox) -> None:
    place = Place(outbox)
    outbox.add([message(key=f"key-{n}") for n in range(4)])
    place.relay.acquire()
    store, relay = place.relay.store, place.relay
    spans = [Span(number, 0) for number in range(16)]
    calls: dict[str, tuple[Callable[[], object], object]] = {
        "enter": (lambda: store.enter(60.0), None),
        "release and acquire": (lambda: take_again(relay, [0, 1]), [0, 1]),
        "stay": (lambda: list(store.stay(60.0, relay.tenures[:2])), []),
        "fleet": (lambda: list(store.fleet().relays), ["a"]),
        "read": (lambda: len(relay.read()), 4),
        "signs": (lambda: store.signs(spans), (True, False, False, 1)),
        "writers": (lambda: store.writers() is not None, True),
        "stragglers": (lambda: list(store.stragglers(spans)), []),
        "holds": (lambda: list(store.holds(range(16), drain_only=False)), []),
        "move": (lambda: dict(store.move_due(relay.tenures[:2], 10)), {}),
    }
    for name, (call, expected) in calls.items():
        for number in range(MOST_STATEMENTS):
            store.fleet(), store.stay(60.0, [])  # whichever was killed last, after its last statement, is well again
            place.faults.arm(number, place.kill, after=number % 2 == 1)
            assert call() == expected, (name, number, place.faults.heard)
            if not place.faults.fired:
                break
        else:
            raise AssertionError(f"{name} has more statements than that?")
    place.engine.dispose()


def take_again(relay: Owner, numbers: list[int]) -> list[int]:
    relay.store.release(relay.progress(numbers))
    return [one.tenure.partition_no for one in relay.acquire(numbers)]


def test_a_lock_that_somebody_keeps_is_waited_for_and_then_told(outbox: OrderedOutbox) -> None:
    engine = relay_engine(outbox.url, timeouts=Timeouts(lock=1))
    store = PartitionStore(engine, relay_id="a", lease=60.0, pause=lambda _: None)
    outbox.ordered.append(store)
    store.enter(60.0)
    relay = Owner(store, 60.0)
    outbox.add([message(key="k")])
    relay.acquire()
    found = relay.read()
    with outbox.engine.connect() as other:
        other.exec_driver_sql("UPDATE outbox_partition SET crashes = crashes")
        impatient = PartitionStore(engine, relay_id="a", lease=60.0, pause=lambda _: other.rollback())
        outbox.ordered.append(impatient)
        assert Owner(impatient, 60.0).store.settle(relay.settlement(sent=found)) == OrderedSettled(1, 0)
        other.exec_driver_sql("UPDATE outbox_partition SET crashes = crashes")
        with pytest.raises(DatabaseBusy):
            store.stay(60.0, relay.tenures)
        other.rollback()
    assert list(store.stay(60.0, relay.tenures)) == []
    engine.dispose()


def test_a_lost_partition_is_told_with_both_tokens(outbox: OrderedOutbox, caplog: pytest.LogCaptureFixture) -> None:
    """C084."""
    world = OrderedWorld(outbox)
    world.add(1, key="k")
    stale, owner = world.relay("stale"), world.relay("owner")
    stale.acquire()
    (found,) = stale.read()
    outbox.pass_time(61)
    owner.acquire()
    with caplog.at_level(logging.WARNING, "pillarbox.store"):
        stale.settle(sent=[found])
    (told,) = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
    assert "token 1" in told
    assert "owner's under token 2" in told
