"""Dead letters on every database: found, counted, shown, and sent again."""

import threading

import pytest
from sqlalchemy import event as sqlalchemy_event

from pillarbox.errors import ConfigError, DeadLetterNotFound
from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ports import Settlement
from pillarbox.store.dead import DeadFilter
from pillarbox.store.inspect import count_dead, dead_letter, dead_letters, overview
from pillarbox.store.replay import replay
from pillarbox.testing.conformance.store_world import all_sent, event, failed
from tests.sql_outbox import SqlOutbox


def bury(outbox: SqlOutbox, messages: list[Message], more: list[Destination] | None = None) -> None:
    """Commit events, claim and give them up."""
    outbox.add(messages, more or [])
    store = outbox.store("undertaker")
    while (claim := store.claim(500)).deliveries:
        dead = [failed(one, due_in=None, error=f"refused: {one.message.event_id}") for one in claim.deliveries]
        assert store.settle(Settlement(claim.token, parked=dead)).parked == len(dead)


def test_the_overview_counts_each_state_and_dates_the_oldest_unconfirmed(outbox: SqlOutbox) -> None:
    with outbox.engine.begin() as connection:
        assert overview(connection) == ({"PENDING": 0, "PROCESSING": 0, "RETRY": 0, "DEAD": 0, "SENT": 0}, None)
    outbox.add([event(key=str(n)) for n in range(10)])
    store = outbox.store("a")
    first = store.claim(6)
    one, two, three, *rest = first.deliveries
    store.settle(Settlement(first.token, all_sent(0, [one]).sent, [failed(two), failed(three, due_in=None)]))
    with outbox.engine.begin() as connection:
        found = overview(connection)
    assert found.counts == {"PENDING": 4, "PROCESSING": len(rest), "RETRY": 1, "DEAD": 1, "SENT": 1}
    assert found.oldest_age is not None
    assert 0 <= found.oldest_age < 60


def test_a_dead_letter_does_not_make_the_backlog_old(outbox: SqlOutbox) -> None:
    bury(outbox, [event()])
    with outbox.engine.begin() as connection:
        assert overview(connection).oldest_age is None


def test_dead_letters_are_listed_page_by_page_in_order(outbox: SqlOutbox) -> None:
    messages = [event(key=str(n)) for n in range(7)]
    bury(outbox, messages)
    with outbox.engine.begin() as connection:
        first = dead_letters(connection, 3)
        second = dead_letters(connection, 3, first[-1].event_id)
        third = dead_letters(connection, 3, second[-1].event_id)
        assert dead_letters(connection, 3, third[-1].event_id) == []
    listed = [*first, *second, *third]
    assert [one.event_id for one in listed] == [one.event_id for one in messages]
    assert {(one.event_type, one.destination, one.dest, one.attempts, one.replays) for one in listed} == {
        ("thing.happened", "things", 0, 1, 0)
    }
    assert listed[0].error == f"refused: {messages[0].event_id}"
    assert listed[0].error_at.utcoffset() is not None


def test_a_page_does_not_tear_one_event_apart(outbox: SqlOutbox) -> None:
    messages = [event(key=str(n)) for n in range(2)]
    bury(outbox, messages, [Destination("audit"), Destination("mail", "k")])
    with outbox.engine.begin() as connection:
        page = dead_letters(connection, 1)
        rest = dead_letters(connection, 10, page[-1].event_id)
    assert [(one.event_id, one.destination) for one in page] == [
        (messages[0].event_id, name) for name in ("things", "audit", "mail")
    ]
    assert len(rest) == 3


def test_work_without_its_event_is_listed_and_never_replayed(outbox: SqlOutbox) -> None:
    lost, kept = event(), event()
    bury(outbox, [lost, kept])
    with outbox.engine.begin() as connection:
        number = connection.exec_driver_sql(f"SELECT id FROM outbox_event WHERE event_id = '{lost.event_id}'").scalar()
    outbox.lose_event(number)
    with outbox.engine.begin() as connection:
        assert [one.event_id for one in dead_letters(connection)] == [f"row:{number}", kept.event_id]
        assert [one.event_id for one in dead_letters(connection, 5, f"row:{number}")] == [kept.event_id]
        assert replay(connection, DeadFilter(), by="me", reason="") == 1


def test_one_dead_letter_is_shown_with_its_message_and_history(outbox: SqlOutbox) -> None:
    message = event(payload=b"\0\xff", headers='{"a":"b"}')
    bury(outbox, [message])
    with outbox.engine.begin() as connection:
        replay(connection, [message.event_id], by="ann", reason="broker was full: ünï")
    store = outbox.store("undertaker")
    claim = store.claim(1)
    store.settle(Settlement(claim.token, parked=[failed(claim.deliveries[0], due_in=None, error="again")]))
    with outbox.engine.begin() as connection:
        found = dead_letter(connection, message.event_id)
    assert found.message == message
    assert [(one.error, one.replays, one.attempts) for one in found.letters] == [("again", 1, 1)]
    (record,) = found.replays
    assert (record.replayed_by, record.reason, record.attempts) == ("ann", "broker was full: ünï", 1)
    assert record.error == f"refused: {message.event_id}"
    assert record.replayed_at.utcoffset() is not None


def test_what_is_not_dead_is_not_found(outbox: SqlOutbox) -> None:
    message = event()
    outbox.add([message])
    with outbox.engine.begin() as connection:
        for unknown in (message.event_id, "nonsense"):
            with pytest.raises(DeadLetterNotFound):
                dead_letter(connection, unknown)
        with pytest.raises(DeadLetterNotFound):
            dead_letters(connection, 10, "nonsense")


def test_a_replayed_event_is_sent_again_under_its_id_with_attempts_from_zero(outbox: SqlOutbox) -> None:
    """C093: what was given up keeps everything that sending it needs."""
    messages = [event(key=str(n)) for n in range(3)]
    bury(outbox, messages)
    with outbox.engine.begin() as connection:
        assert replay(connection, [messages[1].event_id, "unknown"], by="ann", reason="fixed") == 1
    claim = outbox.store("a").claim(10)
    assert [(one.message, one.attempts, one.claims) for one in claim.deliveries] == [(messages[1], 0, 1)]
    assert sorted(outbox.states().values()) == ["DEAD", "DEAD", "PROCESSING"]


def test_a_replay_by_type_takes_that_type_alone(outbox: SqlOutbox) -> None:
    """C071: filter, dry-run count, audit entry, attempts reset."""
    bury(outbox, [event(key=str(n), event_type=f"type-{n % 3}") for n in range(60)])
    one_type = DeadFilter(event_type="type-1")
    with outbox.engine.begin() as connection:
        assert count_dead(connection, one_type) == 20
        assert replay(connection, one_type, by="ann", reason="", limit=15) == 15
        assert replay(connection, one_type, by="ann", reason="", limit=15) == 5
        assert replay(connection, one_type, by="ann", reason="", limit=15) == 0
        assert count_dead(connection) == 40
        audit = connection.exec_driver_sql("SELECT replayed_by, attempts FROM outbox_replay").all()
    assert [tuple(row) for row in audit] == [("ann", 1)] * 20
    types = {one.message.event_type for one in outbox.store("a").claim(100).deliveries}
    assert types == {"type-1"}


def test_a_replay_by_destination_takes_further_destinations_too(outbox: SqlOutbox) -> None:
    bury(
        outbox, [event(key=str(n), destination="orders") for n in range(3)], [Destination('au"dit_1'), Destination("x")]
    )
    bury(outbox, [event(destination='au"dit_1')], [Destination("orders2")])
    with outbox.engine.begin() as connection:
        assert count_dead(connection, DeadFilter(destination='au"dit_1')) == 4
        assert count_dead(connection, DeadFilter(destination="orders")) == 3
        assert count_dead(connection, DeadFilter(destination="order_")) == 0
        assert replay(connection, DeadFilter(destination='au"dit_1'), by="ann", reason="") == 4
    found = {one.message.destination for one in outbox.store("a").claim(10).deliveries}
    assert found == {'au"dit_1'}


def test_a_replay_that_is_rolled_back_changes_nothing(outbox: SqlOutbox) -> None:
    message = event()
    bury(outbox, [message])
    with outbox.engine.connect() as connection:
        assert replay(connection, [message.event_id], by="ann", reason="") == 1
        connection.rollback()
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM outbox_replay").scalar() == 0
    assert list(outbox.states().values()) == ["DEAD"]


def test_an_event_in_flight_is_passed_over(outbox: SqlOutbox) -> None:
    """C029: a replay excludes what is being sent."""
    message = event()
    outbox.add([message])
    outbox.store("a").claim(1)
    with outbox.engine.begin() as connection:
        assert replay(connection, [message.event_id], by="ann", reason="") == 0
        assert replay(connection, DeadFilter(), by="ann", reason="") == 0


def test_two_replays_at_once_move_each_letter_once(outbox: SqlOutbox) -> None:
    """C025, C072: the second waits for the first and finds nothing left."""
    bury(outbox, [event(key=str(n)) for n in range(50)])
    both_have_read = threading.Barrier(2, timeout=10)
    moved: list[int] = []

    def meet(conn: object, cursor: object, statement: str, *rest: object) -> None:
        if "FOR UPDATE" in statement:
            both_have_read.wait()

    def work() -> None:
        with outbox.engine.begin() as connection:
            moved.append(replay(connection, DeadFilter(), by="me", reason=""))

    if outbox.dialect != "sqlite":  # there, the second cannot even begin
        sqlalchemy_event.listen(outbox.engine, "before_cursor_execute", meet)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if outbox.dialect != "sqlite":
        sqlalchemy_event.remove(outbox.engine, "before_cursor_execute", meet)
    assert sorted(moved) == [0, 50]
    with outbox.engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM outbox_replay").scalar() == 50


def test_a_replay_says_who_wanted_it(outbox: SqlOutbox) -> None:
    with outbox.engine.begin() as connection:
        for nobody in ("", "  ", "x" * 256):
            with pytest.raises(ConfigError):
                replay(connection, DeadFilter(), by=nobody, reason="")
