"""What each window does to each way of sending and of consuming: nothing is left unsaid, and the promises stand."""

import itertools

import pytest

from pillarbox.lab.consumers import WAYS
from pillarbox.lab.model import Impossible, LoseAnswer, NotRun, Outcome, Planned
from pillarbox.lab.points import MEANINGS
from pillarbox.lab.strategies import RUNNABLE, STRATEGIES
from pillarbox.lab.windows import WINDOWS

SERVERS = list(itertools.product(("sqlite", "postgres", "mysql", "mariadb"), ("embedded", "kafka", "rabbitmq")))
SENDING = [one.id for one in WINDOWS if one.side == "sending"]
CONSUMING = [one.id for one in WINDOWS if one.side == "consuming"]
STRATEGY = {one.id: one for one in STRATEGIES}
WAY = {one.id: one for one in WAYS}
OUTBOX = ("S5-row", "S5-partition")

EXPECTED = {
    ("W1", "S1"): {Outcome.GHOST},
    ("W2", "S2"): {Outcome.LOSS},
    ("W2", "S3"): {Outcome.LOSS},
    ("W2", "S4"): {Outcome.LOSS},
    ("B4", "S4"): {Outcome.LOSS},
    ("B2", "S2"): {Outcome.LOSS},
    ("B2", "S3"): {Outcome.LOSS},
    ("W3", "S1"): {Outcome.GHOST},
    ("W3", "S3"): {Outcome.DUPLICATE},
    **{("W1", one): {Outcome.NOTHING} for one in OUTBOX},
    **{("W2", one): {Outcome.NOTHING} for one in OUTBOX},
    **{("B1", one): {Outcome.NOTHING} for one in OUTBOX},
    **{("B2", one): {Outcome.NOTHING} for one in OUTBOX},
    **{("W3", one): {Outcome.DUPLICATE} for one in OUTBOX},
    **{("W3r", one): {Outcome.DUPLICATE} for one in OUTBOX},
    **{("B3", one): {Outcome.DUPLICATE} for one in OUTBOX},
    ("W4", "C0"): {Outcome.TWICE},
    ("W4", "C1"): {Outcome.NOTHING},
    ("W4", "C2"): {Outcome.NOTHING},
    ("W4", "CA"): {Outcome.SKIPPED},
    ("W4r", "C0"): {Outcome.TWICE},
    ("W4r", "C1"): {Outcome.TWICE},
    ("W4r", "C2"): {Outcome.NOTHING},
}


def column(name: str):
    return STRATEGY.get(name) or WAY[name]


@pytest.mark.parametrize(("database", "broker"), SERVERS)
def test_every_cell_has_a_plan_that_gives_its_reason(database: str, broker: str) -> None:
    columns = [(window.id, one) for window in WINDOWS for one in (STRATEGIES if window.side == "sending" else WAYS)]
    for window, one in columns:
        plan = one.plan(window, database, broker)
        assert plan.why.endswith("."), (window, one.id)
        if isinstance(plan, Planned):
            assert plan.expected
            assert (Outcome.NOTHING in plan.expected) == (
                len(plan.expected) == 1 and plan.expected == {Outcome.NOTHING}
            )
        if isinstance(plan, NotRun):
            assert plan.reason.endswith("."), (window, one.id)


@pytest.mark.parametrize(("window", "name"), EXPECTED)
def test_what_is_expected_of_a_cell(window: str, name: str) -> None:
    plan = column(name).plan(window, "mysql", "kafka")
    assert isinstance(plan, Planned)
    assert plan.expected == EXPECTED[window, name]


def test_the_outbox_is_never_expected_to_lose_or_to_tell_what_did_not_happen() -> None:
    for (database, broker), window, name in itertools.product(SERVERS, SENDING, OUTBOX):
        plan = STRATEGY[name].plan(window, database, broker)
        if isinstance(plan, Planned | NotRun):
            assert not plan.expected & {Outcome.LOSS, Outcome.GHOST, Outcome.TWICE}


@pytest.mark.parametrize(("database", "broker"), SERVERS)
def test_every_point_that_is_struck_has_words_for_the_timeline(database: str, broker: str) -> None:
    for window in WINDOWS:
        for one in STRATEGIES if window.side == "sending" else WAYS:
            plan = one.plan(window.id, database, broker)
            if isinstance(plan, Planned):
                assert plan.fault.point in MEANINGS


def test_no_answer_is_to_be_lost_where_there_is_no_network() -> None:
    for window, one in itertools.product(SENDING, STRATEGIES):
        plan = one.plan(window, "sqlite", "embedded")
        assert not (isinstance(plan, Planned) and isinstance(plan.fault, LoseAnswer)), (window, one.id)


def test_kafka_s_transaction_runs_on_kafka_alone_and_says_so_elsewhere() -> None:
    for window in SENDING:
        on_kafka = STRATEGY["S4"].plan(window, "mysql", "kafka")
        elsewhere = STRATEGY["S4"].plan(window, "mysql", "rabbitmq")
        if isinstance(on_kafka, Planned):
            assert isinstance(elsewhere, NotRun)
            assert elsewhere.expected == on_kafka.expected
            assert "rabbitmq" in elsewhere.reason
        else:
            assert isinstance(elsewhere, Impossible)


def test_what_has_no_program_is_never_planned() -> None:
    for one in STRATEGIES:
        if one.id not in RUNNABLE:
            plans = [one.plan(window, *servers) for window in SENDING for servers in SERVERS]
            assert not any(isinstance(plan, Planned) for plan in plans)
            assert any(isinstance(plan, NotRun) for plan in plans)


def test_a_window_of_the_other_side_is_no_cell() -> None:
    for window, one in itertools.product(CONSUMING, STRATEGIES):
        assert isinstance(one.plan(window, "mysql", "kafka"), Impossible)
    for window, way in itertools.product(SENDING, WAYS):
        assert isinstance(way.plan(window, "mysql", "kafka"), Impossible)
