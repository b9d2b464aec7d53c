"""Lock conflicts, lost connections and lost answers: what the store does about them by itself."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from pillarbox.errors import DatabaseBusy, DatabaseUnavailable
from pillarbox.ports import Settlement
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.transactions import Transactions
from pillarbox.testing.conformance.store_world import all_sent, event, failed
from tests.servers import DATABASES
from tests.sql_outbox import SqlOutbox, wait_until

each_server = pytest.mark.parametrize("shared_outbox", DATABASES, indirect=True)


@pytest.fixture
def impatient(outbox: SqlOutbox) -> Iterator[Engine]:
    """A relay's engine that waits one second for a lock."""
    engine = relay_engine(outbox.url, timeouts=Timeouts(lock=1))
    yield engine
    engine.dispose()


@pytest.fixture
def holder(outbox: SqlOutbox) -> Iterator[Connection]:
    """Somebody who has locked the only work row."""
    outbox.add([event()])
    engine = relay_engine(outbox.url)
    with engine.connect() as connection:
        touch(connection)
        yield connection
        connection.rollback()
    engine.dispose()


def touch(connection: Connection) -> None:
    assert connection.exec_driver_sql("UPDATE outbox_ready SET attempts = attempts + 1").rowcount == 1


def test_a_lock_conflict_runs_the_transaction_again(impatient: Engine, holder: Connection) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        holder.commit()

    Transactions(impatient, pause=pause).write(touch)
    assert len(pauses) == 1
    with impatient.connect() as connection:
        assert connection.exec_driver_sql("SELECT attempts FROM outbox_ready").scalar() == 2


@pytest.mark.parametrize("shared_outbox", ["sqlite", "postgres", "mysql"], indirect=True)
def test_a_lock_conflict_that_stays_ends_as_an_error_with_a_fix(impatient: Engine, holder: Connection) -> None:
    pauses: list[float] = []
    with pytest.raises(DatabaseBusy, match="lock") as caught:
        Transactions(impatient, tries=2, pause=pauses.append, chance=lambda: 0.5).write(touch)
    assert pauses == [0.01]
    assert isinstance(caught.value, DatabaseUnavailable)


@each_server
@pytest.mark.services
def test_a_deadlock_is_survived_by_both(outbox: SqlOutbox) -> None:
    first, second = sorted(outbox.add([event(key=str(n)) for n in range(2)]))
    both_hold_one = threading.Barrier(2, timeout=10)
    tries: list[int] = []

    def lock_in_order(*order: int) -> None:
        def work(connection: Connection) -> None:
            tries.append(order[0])
            for number in order:
                connection.exec_driver_sql(f"UPDATE outbox_ready SET attempts = attempts + 1 WHERE id = {number}")
                if number == order[0] and tries.count(number) == 1:
                    both_hold_one.wait()

        Transactions(outbox.engine).write(work)

    threads = [threading.Thread(target=lock_in_order, args=order) for order in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(tries) == 3
    with outbox.engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT attempts FROM outbox_ready").scalars().all()
    assert found == [2, 2]


@each_server
@pytest.mark.services
def test_a_connection_that_the_server_closed_is_replaced(outbox: SqlOutbox) -> None:
    """An idle time-out, a restart: one stale connection is not an outage."""
    outbox.add([event(key=str(n)) for n in range(4)])
    store = outbox.store("a")
    claim = store.claim(1)
    for use in (
        lambda: store.settle(all_sent(claim.token, claim.deliveries)).sent == 1,
        lambda: len(store.claim(1).deliveries) == 1,
        lambda: store.move_due(1) == 0,
    ):
        cut_other_connections(outbox)
        assert use()


def test_a_lost_answer_to_commit_is_no_loss(outbox: SqlOutbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settlement went through unheard; settled again, its own traces are recognised."""
    outbox.add([event(key=str(n)) for n in range(4)])
    store = outbox.store("a")
    claim = store.claim(4)
    sent, retry, dead, back = claim.deliveries
    settlement = Settlement(
        claim.token, all_sent(0, [sent]).sent, [failed(retry), failed(dead, due_in=None)], [back.key]
    )
    lose_next_answer_to_commit(store._engine, monkeypatch)
    settled = store.settle(settlement)
    assert (settled.sent, settled.parked, settled.given_back, settled.lost) == (1, 2, 1, ())
    assert sorted(outbox.states().values()) == ["DEAD", "PENDING", "RETRY", "SENT"]


def test_a_server_that_is_away_is_reported_at_once_and_used_again_when_it_is_back(outbox: SqlOutbox) -> None:
    if outbox.dialect == "sqlite":
        away = relay_engine("sqlite:////nowhere/at/all.db")
    else:
        away = relay_engine(outbox.engine.url.set(port=1))
    pauses: list[float] = []
    with pytest.raises(DatabaseUnavailable):
        Transactions(away, pause=pauses.append).read(lambda connection: None)
    assert len(pauses) == 1


def lose_next_answer_to_commit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    commit: Callable[[Any], None] = engine.dialect.do_commit
    still_to_lose = [True]

    def commit_unheard(connection: Any) -> None:
        commit(connection)
        if still_to_lose:
            still_to_lose.clear()
            raise lost_answer(engine, connection)

    monkeypatch.setattr(engine.dialect, "do_commit", commit_unheard)


def lost_answer(engine: Engine, connection: Any) -> Exception:
    """What the driver raises when the server is gone before it answered."""
    error = engine.dialect.loaded_dbapi.OperationalError
    if engine.dialect.name == "sqlite":
        failure: Exception = error("disk I/O error")
        failure.sqlite_errorcode = 10  # type: ignore[attr-defined]
        return failure
    connection.dbapi_connection.close()
    if engine.dialect.name == "mysql":
        return error(2013, "Lost connection to MySQL server during query")
    return error("server closed the connection unexpectedly")


def cut_other_connections(outbox: SqlOutbox) -> None:
    engine = create_engine(outbox.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    if outbox.dialect == "postgresql":
        others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        cut = "SELECT pg_terminate_backend({})"
    else:
        others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        cut = "KILL {}"
    with engine.connect() as connection:
        for number in connection.exec_driver_sql(others).scalars().all():
            connection.exec_driver_sql(cut.format(number))
        wait_until(lambda: not connection.exec_driver_sql(others).first())
    outbox.engine.dispose()  # its idle connections were cut as well
