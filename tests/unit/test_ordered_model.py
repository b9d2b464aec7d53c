"""The algorithm of the ordered relay, every interleaving of it, before any code: and what each of its rules is for.

Two relays, one partition, two keys, three events: late commits, a relay that dies or stalls beyond its lease at any
step and wakes up, refusals, answers that are lost, an operator. First occurrences of a key reach the broker in id
order, nothing is lost, a good end stays in reach from everywhere.
"""

import pytest

from tests.unit.model.explore import Found, explore
from tests.unit.model.rules import Algorithm, Check, Rules, is_good_end
from tests.unit.model.state import State

MAX_DEATHS = 9


def to_be_written(keys: str, **faults: int) -> State:
    """Nobody has begun to write the events."""
    return State(todo=keys, lanes="", open=0, committed=0, **faults)  # type: ignore[arg-type]


def written(keys: str, then: str = "", **faults: int) -> State:
    """Events that are committed, and others to come."""
    there = (1 << len(keys)) - 1
    return State(todo=then, lanes=keys, open=0, committed=there, ready=there, **faults)  # type: ignore[arg-type]


def explored(start: State, algorithm: Algorithm) -> Found:
    check = Check(algorithm.poison, MAX_DEATHS, failures=start.failures > 0 and "P" in algorithm.kinds)
    found = explore(start, algorithm.steps, check, is_good_end)
    print(f"{found.states:,} states, {found.steps:,} steps, {found.ends} ends")
    return found


LATE = Algorithm(batch=2)
ONE_BY_ONE = Algorithm(batch=1)

WORLDS = {
    "late commits": (LATE, to_be_written("AAB")),
    "late commits and rollbacks": (LATE, to_be_written("AAB", rollbacks=2)),
    "late commits and a stall": (LATE, to_be_written("AAB", stalls=1)),
    "late commits and a crash": (LATE, to_be_written("AAB", kills=1)),
    "late commits and a failure": (LATE, to_be_written("AAB", failures=1)),
    "one key only": (LATE, to_be_written("AAA", stalls=1, failures=1)),
    "a stall and a failure": (Algorithm(kinds="RUV"), written("AA", "B", stalls=1, failures=1)),
    "a stall and two failures": (Algorithm(kinds="RV"), written("AAB", stalls=1, failures=2)),
    "two stalls": (Algorithm(kinds="RW"), written("AAB", stalls=2, failures=1)),
    "a stall, small batches, a failure": (Algorithm(batch=1, kinds="RPV"), written("BA", "A", stalls=1, failures=1)),
    "a stall, a crash and a failure": (Algorithm(batch=2, kinds="RV"), written("AAB", stalls=1, kills=1, failures=1)),
    "an operator": (Algorithm(kinds="P"), written("AA", "A", operators=2, failures=2)),
    "an operator, and a stall": (Algorithm(batch=2, kinds="P"), written("AAB", operators=1, failures=1, stalls=1)),
    "releases": (Algorithm(kinds="RV"), written("AA", "B", releases=2, failures=1)),
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_interleaving_breaks_order_or_loses_an_event(world: str) -> None:
    algorithm, start = WORLDS[world]
    found = explored(start, algorithm)
    assert not found.wrong, found.path
    assert found.ends


@pytest.mark.parametrize("keys", ["AAB", "ABA", "BAA"])
@pytest.mark.parametrize("poison", [0, 1, 2])
def test_an_event_that_kills_its_relay_is_given_up_and_its_neighbours_are_delivered(keys: str, poison: int) -> None:
    found = explored(written(keys, failures=1), Algorithm(poison=poison, kinds="RV"))
    assert not found.wrong, found.path
    assert found.ends


@pytest.mark.parametrize("faults", [{"stalls": 1}, {"kills": 1}], ids=str)
def test_it_is_given_up_also_when_relays_stall_or_die_for_other_reasons(faults: dict[str, int]) -> None:
    found = explored(written("AAB", **faults), Algorithm(poison=1))
    assert not found.wrong, found.path


MUTANTS = {
    "writers_lock": (LATE, to_be_written("AA"), "1 arrives before"),
    "read_from_low": (LATE, to_be_written("AAB"), "a bad end"),  # trap 1: the read goes on behind a late commit
    "one_snapshot": (LATE, to_be_written("AAB"), "2 arrives before"),
    "one_round": (LATE, to_be_written("AAB"), "2 arrives before"),
    "wait_for_writers": (LATE, to_be_written("AAB"), "a bad end"),
    "read_again": (LATE, to_be_written("AAB"), "2 arrives before"),
    "withhold": (LATE, to_be_written("AA", failures=1), "1 arrives before"),
    "hold_successors": (LATE, to_be_written("AA", failures=1), "1 arrives before"),
    "free_when_empty": (LATE, written("AA", "A", failures=1), "2 arrives before"),
    "fence_settle": (LATE, written("AAB", stalls=1, failures=1), ""),
    "fence_read": (ONE_BY_ONE, written("BA", "A", stalls=1, failures=1), "2 arrives before"),
    "hand_before_send": (Algorithm(poison=1), written("ABA"), "the poison killed"),
    "charge": (Algorithm(poison=1), written("ABA"), "the poison killed"),
    "charge_once": (Algorithm(poison=1, kinds="V"), written("ABA", failures=4), "dead without a reason"),
    "careful_drains": (Algorithm(poison=1, kinds="R"), written("AAB", failures=1), "the poison killed"),
}


@pytest.mark.parametrize("rule", MUTANTS)
def test_without_this_rule_it_is_found_wrong(rule: str) -> None:
    algorithm, start, wrong = MUTANTS[rule]
    mutant = Algorithm(Rules(**{rule: False}), algorithm.batch, algorithm.poison, algorithm.kinds)

    found = explored(start, mutant)

    assert found.wrong, "the exploration is blind to it"
    assert found.wrong.startswith(wrong), (found.wrong, found.path)
    assert not explored(start, algorithm).wrong, "it is this rule that mends it"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("algorithm", "start"),
    [
        (LATE, to_be_written("AAB", stalls=1, kills=1)),
        (LATE, to_be_written("AAB", stalls=1, failures=1)),
        (Algorithm(), to_be_written("AAB", stalls=1, failures=1, rollbacks=1)),
        (Algorithm(kinds="RPV"), written("AA", "B", stalls=2, kills=1, failures=2, operators=1)),
    ],
)
def test_larger_worlds(algorithm: Algorithm, start: State) -> None:
    found = explored(start, algorithm)
    assert not found.wrong, found.path
