"""An operator skips the event that holds up its key at the moment in which the relay tries it again."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pillarbox.ports import OrderedSettled
from pillarbox.store.skipping import skip
from pillarbox.testing.conformance.ordered_store_world import OrderedWorld, hold_on, set_aside, stream_of
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_ordered import OrderedOutbox


@contextmanager
def on(url: str) -> Iterator[OrderedOutbox]:
    outbox = OrderedOutbox(url)
    yield outbox
    outbox.close()


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.services) for name in DATABASES)])
def outbox(request: pytest.FixtureRequest) -> Iterator[OrderedOutbox]:
    if request.param == "sqlite":
        with on(f"sqlite:///{request.getfixturevalue('tmp_path') / 'outbox.db'}") as outbox:
            yield outbox
        return
    with fresh_database(_need(request, request.param).url) as url, on(url) as outbox:
        yield outbox


@pytest.mark.parametrize("state", ["RETRY", "DEAD"])
def test_what_fails_after_it_was_skipped_stays_buried_and_its_key_goes_on(outbox: OrderedOutbox, state: str) -> None:
    world = OrderedWorld(outbox)
    first, second, third = world.add(3, key="a")
    relay = world.relay()
    relay.acquire()
    head, *behind = relay.read()
    mode = "backoff" if state == "RETRY" else "dead"
    relay.settle(
        aside=[set_aside(head, "RETRY", 0.0), *(set_aside(one, "HELD") for one in behind)],
        holds=[hold_on(head, "backoff", 0.0)],
    )
    (again,) = relay.store.read_parked(stream_of(head), None, 1, 10**6).deliveries
    with outbox.engine.begin() as connection:
        assert skip(connection, [stream_of(head)], by="ann", reason="cannot be right") == 1
    settled = relay.settle(
        aside_parked=[set_aside(again, state, 5.0 if state == "RETRY" else None)],  # type: ignore[arg-type]
        holds=[hold_on(again, mode, 5.0)],  # type: ignore[arg-type]
    )
    assert settled == OrderedSettled(0, 0, vanished=(head.key,))
    assert outbox.states() == {(first, 0): "BURIED", (second, 0): "HELD", (third, 0): "HELD"}
    assert [one.mode for one in relay.store.holds(range(16), drain_only=True)] == ["drain"]


def test_what_arrives_after_it_was_skipped_has_its_receipt(outbox: OrderedOutbox) -> None:
    world = OrderedWorld(outbox)
    world.add(1, key="a")
    relay = world.relay()
    relay.acquire()
    (head,) = relay.read()
    relay.settle(aside=[set_aside(head, "RETRY", 0.0)], holds=[hold_on(head, "backoff", 0.0)])
    with outbox.engine.begin() as connection:
        skip(connection, [stream_of(head)], by="ann", reason="")
    assert relay.settle(sent_parked=[head], freed=[stream_of(head)]) == OrderedSettled(1, 0)
    assert world.states() == ["SENT"]
