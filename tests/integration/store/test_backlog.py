"""The figures that metrics show, on every database."""

from pillarbox.ports import Parked, Sent, Settlement
from pillarbox.store.backlog import backlog
from pillarbox.store.transactions import Transactions
from pillarbox.testing.conformance.store_world import event
from tests.sql_outbox import SqlOutbox


def test_an_empty_outbox_has_no_oldest_event(outbox: SqlOutbox) -> None:
    found = Transactions(outbox.engine).read(backlog)
    assert (dict(found.states), found.oldest_age) == ({"READY": 0}, None)


def test_ready_retry_and_dead_are_counted_and_what_waits_has_an_age(outbox: SqlOutbox) -> None:
    outbox.add([event(), event(), event(), event()])
    store = outbox.store("a")
    claim = store.claim(3)
    sent, failed, dead = claim.deliveries
    store.settle(
        Settlement(
            claim.token,
            sent=[Sent(sent.key, None, None)],
            parked=[
                Parked(failed.key, failed.lane, "RETRY", 60.0, 1, "nack"),
                Parked(dead.key, dead.lane, "DEAD", None, 1, "no"),
            ],
        )
    )
    found = Transactions(outbox.engine).read(backlog)
    assert dict(found.states) == {"READY": 1, "RETRY": 1, "DEAD": 1}
    assert found.oldest_age is not None
    assert 0 <= found.oldest_age < 60
    store.close()


def test_nothing_that_is_sent_or_given_up_counts_as_late(outbox: SqlOutbox) -> None:
    outbox.add([event()])
    store = outbox.store("a")
    claim = store.claim(1)
    (only,) = claim.deliveries
    store.settle(Settlement(claim.token, parked=[Parked(only.key, only.lane, "DEAD", None, 1, "no")]))
    assert Transactions(outbox.engine).read(backlog).oldest_age is None
    store.close()
