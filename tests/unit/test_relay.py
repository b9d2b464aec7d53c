"""The relay on memory and a clock that stands still: what it does with each answer of broker and database."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from pillarbox.errors import BrokerUnavailable, ConfigError, DatabaseUnavailable, DeadlineTooLong, UsedAfterFork
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Claim, Outcome, Rejected, Settled, Settlement, Unavailable, Unknown, WorkKey
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import Relay, RelaySettings, RelayStats
from pillarbox.relay.renewer import Renewer
from pillarbox.store.memory import MemoryStore
from pillarbox.testing.clock import FakeClock
from tests.unit.deliveries import MESSAGE


class World:
    """A relay, its store with some events, its broker and its clock."""

    def __init__(
        self, events: int = 3, settings: RelaySettings | None = None, store: MemoryStore | None = None
    ) -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore(self.clock, relay_id="relay-1")
        self.broker = MemoryPublisher()
        self.relay = Relay(self.store, self.broker, settings, clock=self.clock, chance=lambda: 0.5)
        for number in range(events):
            self.store.add(MESSAGE._replace(event_id=f"event-{number}"))

    @property
    def states(self) -> list[str]:
        """The state of each delivery, in order."""
        return [state for _, state in sorted(self.store.states().items())]


def test_a_round_publishes_and_leaves_a_receipt_for_each_event() -> None:
    world = World()
    assert world.relay.step() is True
    assert {m.event_id for m in world.broker.arrived} == {"event-0", "event-1", "event-2"}
    assert world.states == ["SENT"] * 3
    assert world.relay.step() is False


def test_an_outage_charges_nobody_and_one_probe_goes_out_per_interval() -> None:
    """C059: five minutes without a broker, and no event has lost an attempt."""
    world = World(events=20)
    world.broker.down = True
    for _ in range(300):
        world.relay.step()
        world.clock.advance(1.0)
    assert world.relay.broker_reachable is False
    assert world.relay.stats.outages == 1
    assert world.relay.stats.claimed <= 20 + 300  # the first batch, then single probes
    world.broker.down = False
    world.clock.advance(1.0)
    while world.relay.step():
        pass
    assert world.states == ["SENT"] * 20
    assert world.relay.stats.dead == world.relay.stats.retried == 0
    assert world.relay.broker_reachable is True


def test_a_destination_in_trouble_holds_up_no_other_one_and_charges_nobody() -> None:
    """A topic without leader, with more events waiting than fit one batch, in front of a healthy topic's."""
    world = World(events=50, settings=RelaySettings(batch=10))
    world.store.add(MESSAGE._replace(event_id="good", destination="healthy"))
    sick: list[Outcome] = [
        Unavailable("no leader", broker_answers=True),
        Unknown("late", destination_healthy=False, broker_answers=True),
    ]
    world.broker.answer = lambda m: sick[world.broker.calls % 2] if m.destination == MESSAGE.destination else None
    for _ in range(6):
        world.relay.step()
    assert "good" in {m.event_id for m in world.broker.arrived}
    assert world.relay.broker_reachable is True
    for _ in range(600):
        world.clock.advance(1.0)
        world.relay.step()
    assert world.relay.stats.outages == 1
    assert world.relay.stats.claimed < 50 * 90  # each about every 11 seconds, not every second
    world.broker.answer = lambda m: None
    for _ in range(30):
        world.clock.advance(1.0)
        world.relay.step()
    assert world.states == ["SENT"] * 51
    assert world.relay.stats.dead == world.relay.stats.retried == 0


def test_a_refused_event_is_parked_and_its_neighbours_are_sent() -> None:
    """C004, C060: one event too large between small ones."""
    world = World()
    world.broker.answer = lambda m: Rejected("too large", permanent=True) if m.event_id == "event-1" else None
    world.relay.step()
    assert world.states == ["SENT", "DEAD", "SENT"]


def test_a_failing_event_is_tried_with_growing_pauses_and_then_given_up() -> None:
    world = World(events=1, settings=RelaySettings(retry=RetryPolicy(max_attempts=4, jitter=False)))
    world.broker.answer = lambda m: Rejected("nack", permanent=False)
    tried_at = []
    for _ in range(200):
        calls = world.broker.calls
        world.relay.step()
        if world.broker.calls > calls:
            tried_at.append(world.clock.monotonic())
        world.clock.advance(0.5)
    assert tried_at == [0.0, 1.0, 3.0, 7.0]
    assert world.states == ["DEAD"]


def test_an_event_without_answer_is_sent_again_and_counted() -> None:
    world = World(events=1)
    world.broker.answer = lambda m: Unknown("no answer", destination_healthy=True) if world.broker.calls == 1 else None
    world.relay.step()
    world.clock.advance(2.0)
    world.relay.step()
    assert len(world.broker.arrived) == 2
    assert (world.states, world.relay.stats.unknown) == (["SENT"], 1)


def test_a_relay_that_wakes_up_after_its_lease_can_settle_nothing() -> None:
    """C084: a stale outcome must not overwrite what the new owner does."""
    world = World(events=2)
    other = world.store.another("relay-2")

    def stall(_: object) -> None:
        world.clock.advance(61.0)
        assert len(other.claim(10).deliveries) == 2

    world.broker.answer = lambda m: stall(m) if m.event_id == "event-0" else None
    world.relay.step()
    assert world.relay.stats.lost == 2
    assert world.states == ["PROCESSING"] * 2


class Away(MemoryStore):
    """A store whose settle fails a number of times, as a database that restarts."""

    failures = 0

    def settle(self, settlement: Settlement) -> Settled:
        if self.failures:
            self.failures -= 1
            raise DatabaseUnavailable("the server is restarting")
        return super().settle(settlement)


def test_what_was_sent_and_could_not_be_recorded_is_recorded_when_the_database_is_back() -> None:
    """C006, C084: the path between send and settle has a name and a counter, and does not send again at once."""
    clock = FakeClock()
    store = Away(clock, relay_id="relay-1")
    world = World(store=store)
    store.failures = 3
    world.relay.step()
    assert world.states == ["SENT"] * 3
    assert (world.broker.calls, world.relay.stats.database_errors, world.relay.stats.unrecorded) == (1, 3, 0)


def test_a_stop_between_claim_and_send_gives_everything_back() -> None:
    world = World()
    claim = world.store.claim

    def claim_and_stop(limit: int) -> Claim:
        found = claim(limit)
        world.relay.stop()
        return found

    world.store.claim = claim_and_stop  # type: ignore[method-assign]
    world.relay.step()
    assert world.broker.calls == 0
    assert world.states == ["PENDING"] * 3


def test_a_broker_that_is_away_at_the_start_is_waited_for() -> None:
    world = World(settings=RelaySettings(probe_interval=0.01, poll_max=0.01))

    def refuse() -> None:
        raise BrokerUnavailable("nobody listens")

    world.broker.open = refuse  # type: ignore[method-assign]
    with Relay(world.store, world.broker, world.relay.settings).started():
        wait_until(lambda: world.states == ["SENT"] * 3)


def test_a_nudge_ends_the_pause() -> None:
    store = MemoryStore(relay_id="relay-1")
    broker = MemoryPublisher()
    relay = Relay(store, broker, RelaySettings(poll_min=20.0, poll_max=20.0))
    with relay.started():
        time.sleep(0)  # the relay may or may not have looked once; a nudge must work either way
        store.add(MESSAGE)
        wait_until(lambda: relay.nudge() or bool(broker.arrived))


def test_a_relay_is_refused_in_a_forked_child() -> None:
    world = World()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            world.relay.step()
        except UsedAfterFork:
            os.write(writer, b"refused")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 20) == b"refused"


def test_a_deadline_that_does_not_fit_the_lease_is_refused() -> None:
    with pytest.raises(DeadlineTooLong, match="PB-030"):
        RelaySettings(lease=40, broker_deadline=20)
    with pytest.raises(ConfigError):
        RelaySettings(batch=0)


def test_a_lease_is_renewed_while_its_events_are_in_flight() -> None:
    store = MemoryStore(relay_id="relay-1")
    renewed = threading.Event()
    renew = store.renew

    def note(token: int, keys: object) -> int:
        renewed.set()
        return renew(token, keys)  # type: ignore[arg-type]

    store.renew = note  # type: ignore[method-assign]
    store.add(MESSAGE)
    broker = MemoryPublisher(lambda m: renewed.wait(10) and None)
    relay = Relay(store, broker, RelaySettings(lease=0.3, broker_deadline=0.1))
    relay.run(until_empty=True)
    assert renewed.is_set()
    assert relay.stats.sent == 1


def test_what_was_settled_during_its_renewal_is_not_reported_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    renewed = threading.Event()

    class Settling(MemoryStore):
        def renew(self, token: int, keys: Sequence[WorkKey]) -> int:
            renewer.drop(token)  # as the relay does once it has settled
            renewed.set()
            return 0

    renewer = Renewer(Settling(), 0.03, RelayStats())
    renewer.hold(7, [WorkKey(0, 1, 0)])
    renewer.start()
    assert renewed.wait(10)
    renewer.stop()
    assert caplog.records == []


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition with a deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
