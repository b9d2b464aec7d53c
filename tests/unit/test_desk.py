"""The consumer's scheduler, without threads, brokers or databases: order per key, due times, bounds."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pillarbox.consume.desk import OVERHEAD, Desk, Job
from pillarbox.ports import Incoming

MANY, MUCH = 1_000, 1 << 30


def message(key: str | None, number: int = 0, *, source: str = "orders", body: bytes = b"") -> Incoming:
    return Incoming(source, {}, body, key, number, redelivered=False)


def desk_of(*keys: str | None) -> tuple[Desk, list[Job]]:
    desk = Desk(MANY, MUCH)
    return desk, [desk.add(message(key, number)) for number, key in enumerate(keys)]


def test_the_next_event_of_a_key_is_not_handed_out_before_the_one_in_front_is_settled() -> None:
    desk, (first, second, other) = desk_of("a", "a", "b")
    assert desk.take(0, 1) == [first]
    assert desk.take(0, 1) == [other]
    assert desk.take(0, 1) == []
    desk.done(first)
    assert desk.take(0, 1) == [second]


def test_events_of_the_same_key_on_two_sources_do_not_wait_for_each_other() -> None:
    desk = Desk(MANY, MUCH)
    jobs = [desk.add(message("a", source=source)) for source in ("orders", "payments")]
    assert [desk.take(0, 1), desk.take(0, 1)] == [[jobs[0]], [jobs[1]]]


def test_events_without_key_wait_for_nobody() -> None:
    desk, jobs = desk_of(None, None, None)
    assert [desk.take(0, 1)[0] for _ in jobs] == jobs


def test_an_event_that_waits_for_its_next_attempt_holds_up_its_key_and_nobody_else() -> None:
    desk, (first, second, other) = desk_of("a", "a", "b")
    desk.back(*desk.take(0, 1), 10.0)
    assert desk.take(5, 1) == [other]
    desk.done(other)
    assert (desk.take(9.9, 1), desk.until_due(5.0)) == ([], 5.0)
    assert desk.take(10.0, 1) == [first]
    desk.done(first)
    assert desk.take(10.0, 1) == [second]


def test_an_attempt_counted_by_a_retry_topic_is_not_forgotten() -> None:
    desk = Desk(MANY, MUCH)
    assert desk.add(message("a")._replace(attempts=3)).failures == 3


def test_the_desk_is_full_by_number_and_by_bytes_and_empties_again() -> None:
    desk = Desk(2, MUCH)
    jobs = [desk.add(message(None)) for _ in range(2)]
    assert (desk.room, len(desk)) == (0, 2)
    desk.take(0, 1)
    desk.done(jobs[0])
    assert desk.room == 1
    heavy = Desk(10, 1_000)
    (job,) = [heavy.add(message(None, body=bytes(1_000 - OVERHEAD)))]
    assert heavy.room == 0
    heavy.take(0, 1)
    heavy.done(job)
    assert heavy.room == 10


# Batches --------------------------------------------------------------------------------------------------------------


def test_a_batch_takes_many_of_one_key_in_their_order_and_no_other_batch_meets_them() -> None:
    desk, jobs = desk_of("a", "b", "a", "a", "b", None)
    assert desk.take(0, 4) == [jobs[0], jobs[1], jobs[2], jobs[3]]
    assert desk.take(0, 4) == [jobs[5]]
    for job in jobs[:4]:
        desk.done(job)
    assert desk.take(0, 4) == [jobs[4]]


def test_a_batch_that_failed_is_not_failed_again_by_the_same_event() -> None:
    desk, jobs = desk_of("a", "b", "a", "c")
    batch = desk.take(0, 10)
    assert batch == jobs
    jobs[0].alone = True
    for job in batch:
        desk.back(job)
    assert desk.take(0, 10) == [jobs[1], jobs[3]]
    assert desk.take(0, 10) == [jobs[0]]
    desk.done(jobs[0])
    assert desk.take(0, 10) == [jobs[2]]


def test_one_that_is_alone_behind_others_ends_the_batch_of_its_key() -> None:
    desk, jobs = desk_of("a", "a", "a")
    jobs[1].alone = True
    for expected in jobs:
        assert desk.take(0, 10) == [expected]
        desk.done(expected)


# Back to the broker ---------------------------------------------------------------------------------------------------


def test_what_the_broker_took_back_leaves_the_queue_and_what_is_out_stays() -> None:
    desk, jobs = desk_of("a", "a", "b", None, "c")
    (running,) = desk.take(0, 1)
    (waiting,) = desk.take(0, 1)
    desk.back(waiting, 100.0)
    assert desk.sweep(lambda incoming: incoming.position == 4) == 3
    assert desk.take(0, 1) == [jobs[4]]
    assert (desk.take(1_000, 1), desk.out, len(desk)) == ([], 2, 2)
    desk.done(running)
    desk.done(jobs[4])
    assert (len(desk), desk.out, desk.until_due(0)) == (0, 0, None)


def test_a_key_whose_waiting_head_went_back_does_not_wait_for_it() -> None:
    desk, (_, second) = desk_of("a", "a")
    desk.back(*desk.take(0, 1), 100.0)
    assert desk.sweep(lambda incoming: incoming.position == 1) == 1
    assert desk.take(0, 1) == [second]


# Any sequence of events -----------------------------------------------------------------------------------------------


class AnyDesk(RuleBasedStateMachine):
    """Whatever comes and however it ends: order per key, one at a time, nothing lost, nothing twice."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(12, MUCH)
        self.now = 0.0
        self.numbers = itertools.count()
        self.queued: dict[object, list[Job]] = defaultdict(list)
        self.out: list[list[Job]] = []
        self.due: dict[int, float] = {}

    @precondition(lambda self: self.desk.room > 0)
    @rule(key=st.sampled_from(["a", "b", "c", None]))
    def arrive(self, key: str | None) -> None:
        number = next(self.numbers)
        job = self.desk.add(message(key, number))
        self.queued[key if key is not None else number].append(job)

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        jobs = self.desk.take(self.now, limit)
        assert len(jobs) <= limit
        if not jobs:
            assert not [lane for lane in self.queued if self._may_go(lane)]
            return
        assert len(jobs) == 1 or not any(job.alone for job in jobs)
        for lane, ours in self._by_lane(jobs).items():
            assert self._may_go(lane)
            assert ours == self.queued[lane][: len(ours)]
        self.out.append(jobs)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        jobs = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        stuck: set[object] = set()
        for job in jobs:
            lane = self._lane(job)
            if lane in stuck:
                self.desk.back(job)
                continue
            match data.draw(st.sampled_from(["done", "later", "again"])):
                case "done":
                    self.queued[lane].remove(job)
                    self.desk.done(job)
                case "later":
                    job.alone = data.draw(st.booleans())
                    self.due[job.number] = self.now + data.draw(st.sampled_from([1.0, 5.0]))
                    self.desk.back(job, self.due[job.number])
                    stuck.add(lane)
                case _:
                    self.desk.back(job)
                    stuck.add(lane)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(lost=st.sets(st.integers(0, 40), max_size=5))
    def revoke(self, lost: set[int]) -> None:
        gone = [
            job
            for jobs in self.queued.values()
            for job in jobs
            if job.incoming.position in lost and not any(job in batch for batch in self.out)
        ]
        assert self.desk.sweep(lambda incoming: incoming.position not in lost) == len(gone)
        for job in gone:
            self.queued[self._lane(job)].remove(job)

    @invariant()
    def the_numbers_agree(self) -> None:
        assert len(self.desk) == sum(map(len, self.queued.values()))
        assert self.desk.out == sum(map(len, self.out))
        ready = [self._due(lane) for lane in self.queued if self.queued[lane] and not self._is_out(lane)]
        expected = max(0.0, min(ready) - self.now) if ready else None
        assert self.desk.until_due(self.now) == (pytest.approx(expected) if expected is not None else None)

    def _lane(self, job: Job) -> object:
        return job.incoming.position if job.incoming.key is None else job.incoming.key

    def _by_lane(self, jobs: list[Job]) -> dict[object, list[Job]]:
        found: dict[object, list[Job]] = defaultdict(list)
        for job in jobs:
            found[self._lane(job)].append(job)
        return found

    def _is_out(self, lane: object) -> bool:
        return any(self._lane(job) == lane for batch in self.out for job in batch)

    def _due(self, lane: object) -> float:
        head = self.queued[lane][0]
        return self.due.get(head.number, 0.0) if head.due else 0.0

    def _may_go(self, lane: object) -> bool:
        return bool(self.queued[lane]) and not self._is_out(lane) and self._due(lane) <= self.now


TestAnyDesk = AnyDesk.TestCase


@given(st.lists(st.sampled_from("abcdef"), max_size=60), st.integers(1, 8))
def test_every_event_comes_once_and_in_the_order_of_its_key(keys: list[str], limit: int) -> None:
    desk, jobs = desk_of(*keys)
    seen: list[Job] = []
    while batch := desk.take(0, limit):
        seen += batch
        for job in batch:
            desk.done(job)
    assert sorted(job.number for job in seen) == list(range(len(jobs)))
    for key in set(keys):
        own = [job.number for job in seen if job.incoming.key == key]
        assert own == sorted(own)
    assert (len(desk), desk.room) == (0, MANY)
