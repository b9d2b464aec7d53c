"""Old marks go in small batches; young ones, and consumers at work, do not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, bindparam, text

from pillarbox.effects import Effects
from pillarbox.errors import ConfigError
from pillarbox.ops.inbox_prune import DAY, InboxPruner, InboxRules
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.inbox import mark, mark_many
from pillarbox.store.install import install

OLD, YOUNG = "2020-01-01 00:00:00.000", "2099-01-01 00:00:00.000"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    found = relay_engine(database_url, timeouts=Timeouts(lock=1))
    install(found, ["inbox"])
    yield found
    found.dispose()


def marked(engine: Engine, consumer: str, ids: list[str], at: str) -> None:
    with engine.begin() as connection:
        mark_many(connection, consumer, ids)
        stamp = "CAST(:at AS timestamptz)" if engine.dialect.name == "postgresql" else ":at"
        connection.execute(
            text(
                f"UPDATE inbox_event SET applied_at = {stamp} WHERE consumer = :consumer AND event_id IN :ids"
            ).bindparams(bindparam("ids", expanding=True)),
            {"at": at, "consumer": consumer, "ids": ids},
        )


def left(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT consumer, event_id FROM inbox_event")).all()
    return sorted((str(one), str(other)) for one, other in rows)


def run(pruner: InboxPruner) -> list[int]:
    steps = []
    while True:
        steps.append(pruner.step())
        if steps[-1].finished:
            return [one.removed for one in steps]
        assert len(steps) < 1_000


def test_old_marks_of_every_consumer_go_in_batches_and_young_ones_stay(engine: Engine) -> None:
    """C039"""
    ids = [f"e-{number:04}" for number in range(90)]
    marked(engine, "mail", ids[::2], OLD)
    marked(engine, "mail", ids[1::2], YOUNG)
    marked(engine, "stock", ids[:30], OLD)
    marked(engine, "Ztock", ids[:1], YOUNG)
    assert sum(run(InboxPruner(engine, InboxRules(batch=20), dry=True))) == 75
    assert len(left(engine)) == 121
    pruner = InboxPruner(engine, InboxRules(batch=20))
    assert max(run(pruner)) == 20
    assert {name: count for name, count in pruner.removed.items() if count} == {"mail": 45, "stock": 30}
    assert left(engine) == sorted([("mail", one) for one in ids[1::2]] + [("Ztock", ids[0])])
    assert sum(run(InboxPruner(engine, InboxRules()))) == 0


def test_one_consumers_marks_can_go_alone_and_an_empty_inbox_is_no_error(engine: Engine) -> None:
    assert sum(run(InboxPruner(engine, InboxRules()))) == 0
    marked(engine, "mail", ["a"], OLD)
    marked(engine, "stock", ["a"], OLD)
    assert run(InboxPruner(engine, InboxRules(consumer="nobody"))) == [0]
    assert run(InboxPruner(engine, InboxRules(consumer="mail"))) == [1]
    assert left(engine) == [("stock", "a")]


def test_marks_in_the_making_between_old_ones_hold_nothing_up(engine: Engine) -> None:
    """C037: the pruner waits for no transaction of a consumer, and locks nothing that one needs."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    marked(engine, "stock", [f"e-{number:02}" for number in range(40)], OLD)
    with engine.begin() as connection:
        assert mark(connection, "stock", "e-20-new")
        assert sum(run(InboxPruner(engine, InboxRules(batch=15)))) == 40
        assert mark(connection, "stock", "e-21-new")
    assert [event_id for _, event_id in left(engine)] == ["e-20-new", "e-21-new"]


def test_effects_go_with_the_marks_when_they_are_done(engine: Engine) -> None:
    effects = Effects("billing", engine)
    for number in range(5):
        effects.call(f"e-{number}", "charge", lambda key: "ok")
    with pytest.raises(TimeoutError):
        effects.call("doubtful", "charge", fail)
    with engine.begin() as connection:
        connection.execute(text("UPDATE inbox_effect SET started_at = '2020-01-01 00:00:00'"))
    effects.call("young", "charge", lambda key: "ok")
    marked(engine, "billing", ["e-1"], OLD)
    dry = InboxPruner(engine, InboxRules(batch=2), dry=True)
    run(dry)
    assert (dry.removed, dry.effects_removed) == ({"billing": 1}, 5)
    pruner = InboxPruner(engine, InboxRules(batch=2))
    assert max(run(pruner)) == 2
    assert (pruner.removed, pruner.effects_removed) == ({"billing": 1}, 5)
    with engine.connect() as connection:
        left = connection.scalars(text("SELECT event_id FROM inbox_effect")).all()
    assert sorted(left) == ["doubtful", "young"]


def fail(key: str) -> None:
    raise TimeoutError


@pytest.mark.parametrize(("keep", "horizon"), [(5 * DAY, 7 * DAY), (7 * DAY, 7 * DAY), (DAY, 0.0)])
def test_marks_are_never_kept_for_less_than_the_broker_can_deliver_again(keep: float, horizon: float) -> None:
    with pytest.raises(ConfigError, match="deliver an event again"):
        InboxRules(keep=keep, horizon=horizon)
