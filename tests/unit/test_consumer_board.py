"""Between the polling thread and the workers: what is given back to the broker, what is full, and whose turn it is."""

from typing import Any

import pytest
from sqlalchemy import create_engine

from pillarbox import Consumer, Received
from pillarbox.clock import SystemClock
from pillarbox.consume.board import Board
from pillarbox.consume.desk import Desk
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.consume.plan import Discard, Finish, Gone, PutBack, RetryLater, SetAside, Step, Untouched, WaitOut
from pillarbox.consume.stats import ConsumerStats
from pillarbox.consume.stopping import PauseFlag, StopFlag
from pillarbox.errors import BadConsumer
from pillarbox.ports import Incoming


class Table:
    """A board, and what it was made of."""

    def __init__(self, *, most: int = 8, limit: int = 1) -> None:
        self.stats, self.stop, self.pause = ConsumerStats(), StopFlag(), PauseFlag()
        desk = Desk(most, 1 << 20)
        self.board = Board(desk, self.stats, SystemClock(), self.stop, self.pause, limit=limit, many=most)

    def put(self, *keys: str | None) -> None:
        self.board.put([Incoming("orders", {}, b"", key, n, redelivered=False) for n, key in enumerate(keys)])

    def settle(self, step: Step) -> None:
        (job,) = self.board.take()
        self.board.settle([(job, step)])

    def finished(self) -> list[object]:
        return [incoming.position for incoming in self.board.finished()]


@pytest.mark.parametrize("step", [Finish(), Discard("no matter")])
def test_what_is_finished_is_acknowledged_once(step: Step) -> None:
    table = Table()
    table.put("a", "a")
    table.settle(step)
    assert (table.finished(), table.finished()) == ([0], [])


def test_what_the_broker_took_back_while_it_was_handled_is_never_acknowledged() -> None:
    table = Table()
    table.put("a", "a", "b")
    table.settle(Gone())
    table.board.sweep(lambda incoming: incoming.key == "b")
    assert (table.stats.dropped, table.finished()) == (2, [])
    assert table.board.take()[0].incoming.key == "b"


def test_an_errand_is_not_acknowledged_before_it_is_done_and_its_key_waits() -> None:
    table = Table()
    table.put("a", "a")
    table.settle(SetAside("bad", 3))
    (errand,) = table.board.errands()
    assert (table.board.take(), table.finished(), table.board.errands()) == ([], [], [])
    table.board.postpone(errand, 60.0)
    assert (table.board.errands(), table.board.take()) == ([], [])
    table.board.did(errand)
    assert (table.finished(), table.stats.dead) == ([0], 1)
    assert len(table.board.take()) == 1


def test_an_event_that_was_put_back_is_acknowledged_and_counted_as_a_retry() -> None:
    table = Table()
    table.put("a")
    table.settle(PutBack(5.0, "later", 1))
    (errand,) = table.board.errands()
    table.board.did(errand)
    assert (table.finished(), table.stats.retried, table.stats.dead) == ([0], 1, 0)


def test_an_errand_of_a_message_that_went_back_is_dropped() -> None:
    table = Table()
    table.put("a")
    table.settle(SetAside("bad", 3))
    (errand,) = table.board.errands()
    table.board.did(errand, gone=True)
    assert (table.finished(), table.stats.dropped, table.stats.dead) == ([], 1, 0)


def test_while_the_database_is_away_nobody_is_sent_there_and_after_a_busy_mark_only_its_key_waits() -> None:
    table = Table()
    table.put("a", "b")
    table.settle(WaitOut(60.0, everybody=False))
    assert [job.incoming.key for job in table.board.take()] == ["b"]
    table = Table()
    table.put("a", "b")
    table.settle(WaitOut(60.0, everybody=True))
    assert table.board.take() == []


def test_nothing_is_handed_out_after_a_stop_or_during_a_pause() -> None:
    table = Table()
    table.put("a")
    table.pause.set()
    assert (table.board.take(), table.board.room) == ([], 0)
    table.pause.clear()
    assert table.board.room > 0
    table.stop.set()
    assert (table.board.take(), table.board.closed) == ([], True)


def test_a_nearly_full_desk_asks_for_more_only_when_its_workers_run_dry() -> None:
    table = Table(most=8)
    table.put(*"abcdefg")
    assert table.board.room == 0  # one place is free, and there is enough to do
    while table.board.take():
        pass
    assert table.board.room == 1


def test_untouched_events_are_handed_out_again_at_once() -> None:
    table = Table(limit=5)
    table.put("a", "a", "b")
    jobs = table.board.take()
    table.board.settle([(jobs[0], RetryLater(60.0, 1)), (jobs[1], Untouched()), (jobs[2], Untouched())])
    assert [job.incoming.key for job in table.board.take()] == ["b"]
    assert jobs[0].failures == table.stats.retried == 1


def test_an_error_of_a_worker_reaches_the_polling_thread() -> None:
    table = Table()
    table.put("a")
    table.board.fail(ZeroDivisionError())
    assert table.board.take() == []
    with pytest.raises(ZeroDivisionError):
        table.board.raise_if_broken()


def test_a_pool_that_is_too_small_for_the_workers_is_refused_at_the_start(postgres_url: str) -> None:
    broker = MemoryBroker()
    broker.declare("orders")
    engine = create_engine(postgres_url, pool_size=2, max_overflow=1)
    consumer = Consumer("stock", database=engine, broker=broker, sources=["orders"], workers=4)
    consumer.on("order.created")(_ignore)
    with pytest.raises(BadConsumer, match=r"PB-041.*4 workers need a connection each; the engine's pool has 3"):
        consumer.run()
    engine.dispose()


def test_an_engine_from_a_url_has_a_connection_for_each_worker() -> None:
    assert consumer_engine("postgresql://nowhere/x", connections=5).pool.size() == 5  # type: ignore[attr-defined]


def _ignore(event: Received[Any]) -> None: ...
