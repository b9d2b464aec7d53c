"""Effects outside: called once, answered alike at every delivery, undone in order, left to people when in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from pillarbox import Event, Inbox, Outbox, faultpoints, sqlite_engine
from pillarbox.effects import (
    SAME_KEY,
    EffectInDoubt,
    Effects,
    Lookup,
    NotDone,
    Refused,
    idempotency_key,
)
from pillarbox.errors import ConfigError, EffectNotFound, InvalidEvent, NotSerialisable
from pillarbox.ops.effects import Verdict, details, in_doubt, resolve
from pillarbox.store.effects_ops import remove_done
from tests.integration.outbox.shop import Order, events, new_name, orders, through
from tests.payment_server import Bank, payment_server

EVERYWHERE = through(
    "sqlite-pysqlite", "postgres-psycopg", "mysql-pymysql", "mysql57-pymysql", "mariadb-pymysql", "mariadb102-pymysql"
)
TWO = through("postgres-psycopg", "mysql-pymysql")


class Died(BaseException):
    """The process is gone at a fault point, as far as the code can tell."""


@pytest.fixture(scope="module")
def bank() -> Iterator[Bank]:
    with payment_server(idempotent=True) as found:
        yield found


@pytest.fixture
def effects(engine: Engine) -> Effects:
    return Effects("billing", engine)


@pytest.fixture
def dying() -> Iterator[Callable[..., None]]:
    """``dying(point, passage=1)``: at that passage of the point, the process is gone."""

    def attach(point: str, passage: int = 1) -> None:
        left = [passage]

        def hook(reached: str) -> None:
            if reached == point:
                left[0] -= 1
                if not left[0]:
                    raise Died

        faultpoints.attach(hook)

    yield attach
    faultpoints.attach(None)


class Provider:
    """Counts what is done with which key."""

    def __init__(self, *outcomes: Any) -> None:
        self.keys: list[str] = []
        self._outcomes = list(outcomes)

    def __call__(self, key: str) -> Any:
        self.keys.append(key)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@EVERYWHERE
def test_what_was_answered_is_answered_again_without_a_call(effects: Effects) -> None:
    event, provider = new_name(), Provider({"id": 7, "lines": ["ä", None]})
    first = effects.call(event, "charge", provider)
    assert effects.call(event, "charge", provider) == first == {"id": 7, "lines": ["ä", None]}
    assert provider.keys == [idempotency_key("billing", event, "charge")]
    assert effects.call(event, "notify", Provider(None)) is None
    assert Effects("mail", effects._tables._engine).call(event, "charge", Provider("another consumer")) == (
        "another consumer"
    )


@EVERYWHERE
def test_an_error_that_tells_nothing_leaves_the_effect_in_doubt_for_the_user_to_choose(effects: Effects) -> None:
    event = new_name()
    provider = Provider(TimeoutError("no answer"), {"id": 8})
    with pytest.raises(TimeoutError):
        effects.call(event, "charge", provider)
    with pytest.raises(EffectInDoubt, match="pillarbox effects resolve"):
        effects.call(event, "charge", provider)
    with pytest.raises(EffectInDoubt, match="is believed after 60 s"):
        effects.call(event, "charge", provider, in_doubt=Lookup(lambda key: None, wait=60.0))
    assert len(provider.keys) == 1
    assert effects.call(event, "charge", provider, in_doubt=SAME_KEY) == {"id": 8}
    assert provider.keys == [idempotency_key("billing", event, "charge")] * 2


@EVERYWHERE
def test_a_lookup_finds_what_was_done_or_lets_it_be_done(effects: Effects) -> None:
    for found in ({"id": 9}, None):
        event, provider = new_name(), Provider(TimeoutError("no answer"), {"id": 10})
        with pytest.raises(TimeoutError):
            effects.call(event, "charge", provider)
        lookup = Lookup(lambda key, found=found: found, wait=0.0)  # type: ignore[misc]
        assert effects.call(event, "charge", provider, in_doubt=lookup) == (found or {"id": 10})
        assert len(provider.keys) == (1 if found else 2)
        assert effects.call(event, "charge", provider) == (found or {"id": 10})


@EVERYWHERE
def test_what_was_not_done_is_called_again_and_refused_after_so_many_tries(effects: Effects) -> None:
    event = new_name()
    provider = Provider(ConnectionRefusedError("down"), NotDone("busy"), NotDone("busy"))
    with pytest.raises(ConnectionRefusedError):
        effects.call(event, "charge", provider, not_done=(ConnectionRefusedError,), tries=3)
    with pytest.raises(NotDone):
        effects.call(event, "charge", provider, tries=3)
    for _ in range(2):
        with pytest.raises(Refused, match="not done in 3 attempts: EffectNotDone"):
            effects.call(event, "charge", provider, tries=3)
    assert len(provider.keys) == 3


@EVERYWHERE
def test_a_final_no_is_remembered(effects: Effects) -> None:
    event, provider = new_name(), Provider(Refused("card declined"))
    for _ in range(2):
        with pytest.raises(Refused, match="card declined"):
            effects.call(event, "charge", provider)
    assert len(provider.keys) == 1


def test_an_answer_that_cannot_be_kept_is_in_doubt_and_not_lost_in_silence(engine: Engine) -> None:
    effects, event = Effects("billing", engine), new_name()
    with pytest.raises(NotSerialisable):
        effects.call(event, "charge", Provider(object()))
    with pytest.raises(EffectInDoubt):
        effects.call(event, "charge", Provider({"id": 1}))


@pytest.mark.parametrize("step", ["", ":undo charge", "x" * 91, "a\0"])
def test_a_step_needs_a_name_of_its_own(step: str) -> None:
    with pytest.raises(InvalidEvent):
        Effects("billing", "sqlite:///nowhere.db").call("e", step, print)
    with pytest.raises(ConfigError):
        Lookup(lambda key: None, wait=-1)


# Steps ------------------------------------------------------------------------------------------------------------


def ship(key: str) -> Any:
    raise Refused("no such address")


@TWO
@pytest.mark.parametrize("dies", [None, "effect.before-start", "effect.started", "effect.called", "effect.done"])
@pytest.mark.parametrize("during", ["ship", "undo"])
def test_when_a_later_step_is_refused_the_earlier_ones_are_undone_once_wherever_the_process_dies(
    engine: Engine, bank: Bank, dying: Callable[..., None], dies: str | None, during: str
) -> None:
    effects, event = Effects("billing", engine), new_name()
    if dies is not None:  # the charge passes each point once; a refused step does not come to the last two
        passed = 2 if during == "ship" or dies in ("effect.called", "effect.done") else 3
        dying(dies, passed)

    def handle() -> None:
        with effects.steps(event) as steps:
            charge = steps.call(
                "charge",
                lambda key: bank.charge(f"{event} {engine.name}{dies}{during}", key),
                undo=lambda key, answer: bank.refund(answer["id"], key),
                in_doubt=SAME_KEY,
            )
            assert charge["amount"] == 17
            steps.call("ship", ship, in_doubt=SAME_KEY)

    if dies is not None:
        with pytest.raises(Died):
            handle()
        faultpoints.attach(None)
    for _ in range(2):
        with pytest.raises(Refused, match="no such address"):
            handle()
    (charge,) = bank.charges(f"{event} {engine.name}{dies}{during}")
    assert len(bank.refunds(charge["id"])) == 1


@EVERYWHERE
def test_steps_are_undone_backwards_and_only_those_that_were_done(effects: Effects) -> None:
    event, undone = new_name(), list[tuple[str, Any]]()

    def handle() -> None:
        with effects.steps(event) as steps:
            for name in ("reserve", "charge", "notify"):
                steps.call(name, lambda key, n=name: n, undo=lambda key, answer: undone.append((answer, key)))  # type: ignore[misc]
            steps.call("print", lambda key: "cannot be undone")
            raise Refused("sold out")  # a reason of the handler's own

    with pytest.raises(Refused, match="sold out"):
        handle()
    assert [answer for answer, _ in undone] == ["notify", "charge", "reserve"]
    assert len({key for _, key in undone}) == 3


@EVERYWHERE
def test_what_was_given_up_is_not_begun_again_when_the_reason_is_gone(
    effects: Effects, dying: Callable[..., None]
) -> None:
    """The stock came back between two deliveries; the charge is refunded by then."""
    event, undone, sold_out = new_name(), list[Any](), [True]

    def handle() -> None:
        with effects.steps(event) as steps:
            steps.call("charge", lambda key: "charged", undo=lambda key, answer: undone.append(answer))
            if sold_out[0]:
                raise Refused("sold out")
            steps.call("ship", lambda key: pytest.fail("it is refunded"))

    dying("effect.done", 2)
    with pytest.raises(Died):
        handle()
    faultpoints.attach(None)
    sold_out[0] = False
    with pytest.raises(Refused, match="sold out"):
        handle()
    assert undone == ["charged"]


@EVERYWHERE
def test_an_undo_that_fails_keeps_the_event_and_one_that_is_refused_is_for_a_person(effects: Effects) -> None:
    event, outcomes = new_name(), [NotDone("busy"), Refused("too late to refund")]

    def undo(key: str, answer: Any) -> None:
        raise outcomes.pop(0)

    def handle() -> None:
        with effects.steps(event) as steps:
            steps.call("charge", lambda key: "charged", undo=undo)
            steps.call("ship", ship)

    with pytest.raises(NotDone):
        handle()
    with pytest.raises(RuntimeError, match="too late to refund"):
        handle()
    for _ in range(2):
        with pytest.raises(EffectInDoubt, match=":undo charge"):
            handle()


@EVERYWHERE
def test_an_error_or_a_doubt_undoes_nothing_and_an_empty_handed_end_neither(effects: Effects) -> None:
    event, undone = new_name(), list[Any]()
    provider = Provider(TimeoutError(), "shipped")

    def handle() -> None:
        with effects.steps(event) as steps:
            steps.call("charge", lambda key: "charged", undo=lambda key, answer: undone.append(answer))
            steps.call("ship", provider)

    for error in (TimeoutError, EffectInDoubt):
        with pytest.raises(error):
            handle()
    with effects.steps(new_name()) as steps:
        steps.call("charge", lambda key: "charged", undo=lambda key, answer: undone.append(answer))
    assert undone == []


# Another outbox, people, upkeep ---------------------------------------------------------------------------------------


@TWO
def test_an_event_out_of_a_handler_commits_with_its_mark_however_often_it_is_delivered(engine: Engine) -> None:
    """C032: a chain through another outbox is one line in the handler."""
    inbox, outbox, name = Inbox("billing", engine), Outbox(bind=engine), new_name()

    def handle(*, fails: bool) -> None:
        with Session(engine) as session, session.begin():
            if inbox.once(session, name):
                session.add(Order(name=name))
                session.flush()
                outbox.add(session, Event({"n": 1}, type="order.paid", aggregate=("order", name)), to="paid")
                if fails:
                    raise RuntimeError("after the event")

    with pytest.raises(RuntimeError):
        handle(fails=True)
    assert (events(engine, name), orders(engine, name)) == (0, 0)
    for _ in range(3):
        handle(fails=False)
    assert (events(engine, name), orders(engine, name)) == (1, 1)


@EVERYWHERE
def test_a_person_sees_what_is_in_doubt_and_every_verdict_is_kept(engine: Engine) -> None:
    """C088: the list names no answer and no text of an error, which may tell of people."""
    effects, event = Effects("billing", engine), new_name()
    effect_id = idempotency_key("billing", event, "charge")
    with pytest.raises(TimeoutError):
        effects.call(event, "charge", Provider(TimeoutError("charging anna@example.org")))
    with engine.connect() as connection:
        (listed,) = [one for one in in_doubt(connection, consumer="billing", limit=10_000) if one.event_id == event]
        assert (listed.id, listed.step, listed.state, listed.attempts) == (effect_id, "charge", "unknown", 1)
        assert "anna" not in str(listed)
        assert not [one for one in in_doubt(connection, older_than=3_600) if one.event_id == event]
        assert not in_doubt(connection, consumer="nobody")
        assert "anna" in str(details(connection, effect_id).error)
    with engine.begin() as connection:
        resolve(connection, effect_id, Verdict("not_done", "anna", "the provider has no such charge"))
    with pytest.raises(TimeoutError):
        effects.call(event, "charge", Provider(TimeoutError()))
    with engine.begin() as connection:
        resolve(connection, effect_id, Verdict("done", "bert", "found it", '{"id": 11}'))
        with pytest.raises(EffectNotFound, match="not in doubt but done"):
            resolve(connection, effect_id, Verdict("refused", "carl", "no"))
        found = details(connection, effect_id)
    assert [(one.resolved_by, one.was, one.verdict) for one in found.resolutions] == [
        ("anna", "unknown", "not_done"),
        ("bert", "unknown", "done"),
    ]
    assert effects.call(event, "charge", Provider()) == {"id": 11}


@EVERYWHERE
def test_what_is_at_work_is_not_resolved_by_mistake(engine: Engine, dying: Callable[..., None]) -> None:
    effects, event = Effects("billing", engine), new_name()
    effect_id = idempotency_key("billing", event, "charge")
    dying("effect.started")
    with pytest.raises(Died):
        effects.call(event, "charge", Provider())
    with engine.begin() as connection:
        with pytest.raises(EffectNotFound, match="--started"):
            resolve(connection, effect_id, Verdict("refused", "anna", "sold out"))
        resolve(connection, effect_id, Verdict("refused", "anna", "sold out"), started=True)
        with pytest.raises(EffectNotFound):
            details(connection, "nothing")
    with pytest.raises(Refused, match="sold out"):
        effects.call(event, "charge", Provider())
    for bad in ({"by": ""}, {"reason": ""}):
        with pytest.raises(ConfigError):
            Verdict("refused", **{"by": "anna", "reason": "because"} | bad)
    with pytest.raises(InvalidEvent):
        Verdict("done", "anna", "because", "no json")


@EVERYWHERE
def test_old_effects_go_when_they_are_done_and_stay_while_they_are_in_doubt(engine: Engine) -> None:
    effects, done, doubtful = Effects("billing", engine), new_name(), new_name()
    effects.call(done, "charge", Provider("ok"))
    with pytest.raises(TimeoutError):
        effects.call(doubtful, "charge", Provider(TimeoutError()))
    with engine.begin() as connection:
        assert remove_done(connection, keep=3_600, limit=10_000) == 0
        ids = [idempotency_key("billing", one, "charge") for one in (done, doubtful)]
        for one in ids:
            sql = text("UPDATE inbox_effect SET started_at = '2020-01-01 00:00:00' WHERE effect_id = :id")
            connection.execute(sql, {"id": one})
        assert remove_done(connection, keep=3_600, limit=10_000) == 1
        assert details(connection, ids[1]).effect.state == "unknown"
        with pytest.raises(EffectNotFound):
            details(connection, ids[0])


def test_on_sqlite_the_handlers_own_file_is_refused_with_the_way_out(shops: Any) -> None:
    engine = sqlite_engine(shops.url("sqlite"), busy_timeout=0.05)
    with Session(engine) as session, session.begin():
        assert Inbox("billing").once(session, new_name())
        with pytest.raises(ConfigError, match="one writer"):
            Effects("billing", engine).call(new_name(), "charge", Provider("ok"))
    engine.dispose()
