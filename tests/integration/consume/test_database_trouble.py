"""The consumer's database breaks: nothing is charged to the event, nothing applied twice, and it goes on by itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received, RetryPolicy
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.errors import AccessRefused, BadConsumer, DatabaseUnavailable, TablesMissing
from pillarbox.lab.proxy import FaultProxy, fault_proxy
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, crash_at, write_effect
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_in_memory import InMemory

QUICK = RetryPolicy(base=0.01, cap=0.02, max_attempts=3)


@dataclass
class BehindProxy:
    """The consumer reaches its database through a proxy, the test reaches it directly."""

    world: ConsumerWorld
    proxy: FaultProxy
    engine: Engine

    def consumer(self, **changes: Any) -> Consumer:
        return self.world.consumer_of_things(database=self.engine, **changes)


@pytest.fixture(scope="module", params=["postgres", "mysql"])
def database_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def direct(
    request: pytest.FixtureRequest, database_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A database with the inbox for all these tests; each has consumers of its own names."""
    with shared_database(request, database_name, tmp_path_factory) as engine:
        yield engine


@pytest.fixture
def behind(direct: Engine) -> Iterator[BehindProxy]:
    with fault_proxy(direct.url.host or "", direct.url.port or 0) as proxy:
        engine = create_engine(
            direct.url.set(host="127.0.0.1", port=proxy.port), connect_args={"connect_timeout": 1}, pool_size=1
        )
        yield BehindProxy(ConsumerWorld(InMemory(), direct), proxy, engine)
        engine.dispose()


def write_and_swallow(session: Session, event_id: str, note: str) -> None:
    with suppress(SQLAlchemyError):
        write_effect(session, event_id, note)


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillarbox.consume.plan.OUTAGE_RETRY", RetryPolicy(base=0.01, cap=0.1, max_attempts=2**31))


def test_an_outage_between_events_is_waited_out_and_charged_to_nobody(behind: BehindProxy) -> None:
    consumer = behind.consumer(retry=RetryPolicy(max_attempts=1))
    behind.world.send(behind.world.message(1))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.applied == 1)
        behind.proxy.refuse()
        behind.world.send(behind.world.message(2), behind.world.message(3))
        running.wait_until(lambda: consumer.stats.database_away > 3)
        behind.proxy.heal()
        running.wait_until(lambda: consumer.stats.acknowledged == 3)
    assert behind.world.notes() == ["1", "2", "3"]
    assert (consumer.stats.retried, consumer.stats.dead) == (0, 0)


def test_a_connection_that_breaks_while_a_handler_works_is_not_the_handlers_fault(behind: BehindProxy) -> None:
    consumer = behind.world.consumer(database=behind.engine, retry=RetryPolicy(max_attempts=1))
    tries = list[int]()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        tries.append(1)
        if len(tries) == 1:
            behind.proxy.cut()
        write_effect(session, event.id)

    behind.world.send(behind.world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1)
    assert (len(tries), len(behind.world.effects()), consumer.stats.dead) == (2, 1, 0)
    assert consumer.stats.database_away >= 1


@pytest.mark.parametrize("write", [write_effect, write_and_swallow])
def test_an_event_whose_handler_loses_the_database_each_time_is_set_aside(
    behind: BehindProxy, write: Callable[[Session, str, str], None]
) -> None:
    """A statement larger than the server's packet ends the connection; the events behind it must not wait for ever."""
    consumer = behind.world.consumer(database=behind.engine)

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        if event.payload.n == 1:
            behind.proxy.cut()
        write(session, event.id, str(event.payload.n))

    behind.world.send(behind.world.message(1), behind.world.message(2))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 2)
    assert behind.world.notes() == ["2"]
    assert (consumer.stats.dead, consumer.stats.retried) == (1, 0)
    assert consumer.stats.database_away == 9


@pytest.mark.parametrize("statement", ["ROLLBACK", "SELECT nothing FROM no_such_table"])
def test_a_transaction_that_the_server_undid_is_never_taken_for_applied(behind: BehindProxy, statement: str) -> None:
    """MySQL undoes it at a deadlock and goes on in a new one, PostgreSQL at any error; past SQLAlchemy, too."""
    consumer, tries = behind.world.consumer(), list[int]()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id, "first")
        tries.append(1)
        if len(tries) == 1:
            with suppress(Exception):
                session.connection().connection.cursor().execute(statement)
            if statement == "ROLLBACK":
                with suppress(SQLAlchemyError):
                    session.execute(text("SELECT nothing FROM no_such_table"))
        write_effect(session, event.id, "second")

    behind.world.send(behind.world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1)
    assert behind.world.notes() == ["first", "second"]
    assert behind.world.marks(consumer) == consumer.stats.applied == 1


def test_a_commit_whose_answer_was_lost_is_found_done_by_its_mark(behind: BehindProxy) -> None:
    consumer = behind.consumer(retry=RetryPolicy(max_attempts=1))
    behind.world.send(behind.world.message())

    def lose_it() -> bool:
        behind.proxy.lose_answers()
        threading.Timer(0.3, behind.proxy.heal).start()
        return False

    with crash_at("consumer.after-handler", when=lose_it), consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1)
    assert (consumer.stats.applied, consumer.stats.duplicates, consumer.stats.database_away) == (0, 1, 1)
    assert len(behind.world.effects()) == 1


def test_a_stop_during_an_outage_is_prompt_and_acknowledges_nothing(behind: BehindProxy) -> None:
    consumer = behind.consumer()
    with consumer.start() as running:
        behind.proxy.refuse()
        behind.world.send(behind.world.message())
        running.wait_until(lambda: consumer.stats.database_away > 0)
    assert consumer.stats.acknowledged == 0
    assert behind.world.under_test.unacknowledged(behind.world.source, consumer.name) == 1


def test_two_copies_of_one_event_never_run_their_handlers_at_the_same_time(behind: BehindProxy) -> None:
    """C030: the mark is taken before the handler, so the second copy waits for the first, and then skips."""
    first, second = (behind.world.consumer("same") for _ in range(2))
    mails, entered, both_in = list[str](), threading.Event(), threading.Barrier(2)

    def mail(event: Received[Thing], session: Session) -> None:
        entered.set()
        mails.append(event.id)
        with pytest.raises(threading.BrokenBarrierError):
            both_in.wait(0.5)  # the other copy does not come in while this one is here
        write_effect(session, event.id)

    for consumer in (first, second):
        consumer.on("thing.happened")(mail)
    message = behind.world.message()
    with first.start() as running, second.start():
        behind.world.send(message, message)
        running.wait_until(lambda: first.stats.acknowledged + second.stats.acknowledged == 2)
    assert mails == behind.world.effects() == [message.event_id]
    assert first.stats.duplicates + second.stats.duplicates == 1


def test_a_duplicate_leaves_the_connection_usable(behind: BehindProxy) -> None:
    """C031: on PostgreSQL a violated key would abort the transaction, and whatever follows in it."""
    consumer = behind.consumer(retry=RetryPolicy(max_attempts=1))
    message = behind.world.message(1)
    behind.world.send(message, message, behind.world.message(2))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 3)
    assert behind.world.notes() == ["1", "2"]
    assert (consumer.stats.database_away, consumer.stats.dead) == (0, 0)


def test_a_deadlock_is_tried_again(behind: BehindProxy) -> None:
    """The victim of a deadlock is rolled back by the server; the next attempt goes through."""
    world = behind.world
    one, other = world.message(1), world.message(2)
    with world.database.begin() as connection:
        write_effect_row(connection, "row-a")
        write_effect_row(connection, "row-b")
    consumers, meet = [world.consumer("a"), world.consumer("b")], threading.Barrier(2)
    first_try = {"a": True, "b": True}

    def update_both(name: str, order: tuple[str, str]) -> Any:
        def handle(event: Received[Thing], session: Session) -> None:
            session.connection().exec_driver_sql(
                f"UPDATE conformance_effect SET note = '{name}' WHERE event_id = '{order[0]}'"
            )
            if first_try[name]:
                first_try[name] = False
                meet.wait(10)
            session.connection().exec_driver_sql(
                f"UPDATE conformance_effect SET note = '{name}' WHERE event_id = '{order[1]}'"
            )

        return handle

    consumers[0].on("thing.happened")(update_both("a", ("row-a", "row-b")))
    consumers[1].on("thing.happened")(update_both("b", ("row-b", "row-a")))
    with consumers[0].start() as running, consumers[1].start():
        world.send(one, other._replace(event_id=one.event_id))
        running.wait_until(lambda: sum(c.stats.applied for c in consumers) >= 2, 20)
    assert sum(c.stats.retried for c in consumers) >= 1
    assert sum(c.stats.dead for c in consumers) == 0


def write_effect_row(connection: Any, name: str) -> None:
    connection.exec_driver_sql(f"INSERT INTO conformance_effect (event_id, note) VALUES ('{name}', '')")


# At the start ---------------------------------------------------------------------------------------------------------


def consumer_at(database: Engine | str) -> Consumer:
    broker = MemoryBroker()
    broker.declare("things")
    consumer = Consumer("x", database=database, broker=broker, sources=["things"])
    consumer.on("thing.happened")(_ignore)
    return consumer


def test_a_database_without_the_inbox_is_named_with_its_fix(database_url: str) -> None:
    with pytest.raises(TablesMissing, match=r"PB-006.*init --part inbox"):
        consumer_at(database_url).run()


def test_a_database_that_is_away_at_the_start_is_a_clear_error(direct: Engine) -> None:
    with pytest.raises(DatabaseUnavailable, match="PB-004"):
        consumer_at(direct.url.set(port=1).render_as_string(hide_password=False)).run()


def test_a_wrong_password_is_a_clear_error(mysql_url: str) -> None:
    with pytest.raises(AccessRefused, match="PB-008") as caught:
        consumer_at(make_url(mysql_url).set(password="s3cr3t-wrong").render_as_string(hide_password=False)).run()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("statement", ["COMMIT", "CREATE TABLE ddl_in_a_handler (id INTEGER)"])
def test_a_statement_that_ends_the_transaction_on_the_server_is_noticed(
    direct: Engine, database_name: str, statement: str
) -> None:
    """DDL commits implicitly on MySQL. The event is set aside at once, and its mark does not stay behind."""
    world = ConsumerWorld(InMemory(), direct)
    consumer = world.consumer()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id, "before")
        session.execute(text(statement))
        write_effect(session, event.id, "after")

    world.send(world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1)
    if database_name == "postgres" and statement != "COMMIT":
        assert world.notes() == ["before", "after"]  # DDL is transactional there
    else:
        (dead,) = world.dead(consumer)
        assert "PB-043" in dead.headers["deadLetterReason"]
        assert "may stand committed" in dead.headers["deadLetterReason"]
        assert (dead.headers["deadLetterAttempts"], world.notes(), world.marks(consumer)) == ("1", ["before"], 0)


def test_an_engine_in_autocommit_is_used_in_transactions_or_refused(direct: Engine, sqlite_url: str) -> None:
    engine = create_engine(direct.url, isolation_level="AUTOCOMMIT")
    world = ConsumerWorld(InMemory(), engine)
    consumer = world.consumer()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id)
        raise ValueError("nothing of this may stay")

    world.send(world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 1)
    assert world.effects() == []
    engine.dispose()
    sqlite = create_engine(sqlite_url, isolation_level="AUTOCOMMIT")
    install(consumer_engine(sqlite_url), ["inbox"])
    with pytest.raises(BadConsumer, match="AUTOCOMMIT"):
        consumer_at(sqlite).run()
    sqlite.dispose()


def _ignore(event: Received[Thing]) -> None: ...
