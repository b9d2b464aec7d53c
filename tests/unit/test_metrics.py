"""What Prometheus gets, and that docs/metrics.md has a line for each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pillarbox.errors import DatabaseUnavailable
from pillarbox.observe.exposition import make_text
from pillarbox.observe.lookout import Lookout, Seen
from pillarbox.observe.metrics import NO_COUNTERS, RELAY_COUNTERS, names
from pillarbox.observe.snapshot import Snapshot, not_running
from pillarbox.policy.health import Health
from pillarbox.ports import Backlog
from pillarbox.relay import RelayStats
from pillarbox.testing.clock import FakeClock

DOCS = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `(pillarbox_\w+)` \|", DOCS, re.MULTILINE)
WELL = Health(True, True, (), {"broker_reachable": True, "partitions_owned": 4, "moved_seconds_ago": 0.1})


class Shown:
    def __init__(self, snapshots: Sequence[Snapshot], backlogs: Mapping[str, Seen]) -> None:
        self._snapshots, self._backlogs = snapshots, backlogs

    def snapshots(self) -> Sequence[Snapshot]:
        return self._snapshots

    def backlogs(self) -> Mapping[str, Seen]:
        return self._backlogs


def values(*snapshots: Snapshot, **backlogs: Seen) -> dict[tuple[str, ...], float]:
    body, _ = make_text(Shown(snapshots, backlogs))("")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_counters_and_gauges_come_with_outbox_and_process() -> None:
    found = values(Snapshot(1, "shop", "r1", {"sent": 7}, WELL, restarts=2))
    assert found["pillarbox_relay_sent_total", "shop", "1"] == 7
    assert found["pillarbox_relay_restarts_total", "shop", "1"] == 2
    assert found["pillarbox_relay_ready", "shop", "1"] == 1
    assert found["pillarbox_relay_partitions_owned", "shop", "1"] == 4
    assert not [key for key in found if key[0] == "pillarbox_relay_partitions_entitled"]


def test_the_backlog_is_shown_with_the_states_and_reasons_that_are_empty() -> None:
    backlog = Backlog({"READY": 3, "DEAD": 1}, {"backoff": 2}, 1.5, relays=2, unowned=0)
    found = values(shop=Seen(backlog, age=0.5, took=0.01, errors=0))
    assert found["pillarbox_outbox_deliveries", "shop", "READY"] == 3
    assert found["pillarbox_outbox_deliveries", "shop", "HELD"] == 0
    assert found["pillarbox_outbox_holds", "shop", "backoff"] == 2
    assert found["pillarbox_outbox_oldest_seconds", "shop"] == 1.5


def test_without_a_look_that_worked_there_is_no_backlog_rather_than_a_zero() -> None:
    found = values(shop=Seen(None, age=9, took=0, errors=3))
    assert not [key for key in found if key[0] == "pillarbox_outbox_deliveries"]
    assert found["pillarbox_outbox_look_errors_total", "shop"] == 3


def test_a_relay_that_is_being_started_again_is_shown_as_not_ready() -> None:
    found = values(not_running(0, "default", "r1", "waits to be started again", 1))
    assert (found["pillarbox_relay_live", "default", "0"], found["pillarbox_relay_ready", "default", "0"]) == (1, 0)


def test_a_snapshot_survives_the_way_between_processes() -> None:
    snapshot = Snapshot(1, "shop", "r1", {"sent": 7}, WELL, restarts=2)
    assert Snapshot.from_dict(snapshot.as_dict()) == snapshot


def test_each_counter_of_a_relay_has_its_help() -> None:
    assert {field.name for field in fields(RelayStats)} <= set(RELAY_COUNTERS) | NO_COUNTERS


@pytest.mark.parametrize("name", names())
def test_each_metric_has_its_line_in_the_documentation(name: str) -> None:
    assert name in LINES


def test_no_line_describes_a_metric_that_is_gone() -> None:
    assert sorted(LINES) == sorted(names())


def test_the_alerts_are_yaml_and_ask_for_metrics_that_exist() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    rules = [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"pillarbox_\w+", rule["expr"])}
    assert len(rules) >= 5
    assert asked <= set(names())


def test_every_metric_that_is_exported_is_a_documented_one() -> None:
    backlog = Backlog({}, {}, None, relays=0, unowned=0)
    everything = Snapshot(0, "shop", "r1", dict.fromkeys(RELAY_COUNTERS, 1), WELL)
    found = {key[0] for key in values(everything, shop=Seen(backlog, 0, 0, 0))}
    assert {name for name in found if name.startswith("pillarbox")} <= set(names())


# Looking ----------------------------------------------------------------------------------------------------------

EMPTY = Backlog({}, {}, None, relays=1, unowned=0)


def until_looked(lookout: Lookout) -> Seen:
    seen = lookout.latest()
    assert lookout._done.wait(10)
    return lookout.latest() if seen.backlog is None else seen


def test_two_scrapes_in_a_row_cost_one_look() -> None:
    looks: list[int] = []

    def look() -> Backlog:
        looks.append(1)
        return EMPTY

    lookout = Lookout(look, clock=FakeClock(), patience=10)
    assert [lookout.latest().backlog, lookout.latest().backlog] == [EMPTY, EMPTY]
    assert len(looks) == 1


def test_a_slow_look_is_repeated_the_later() -> None:
    clock = FakeClock()
    looks: list[float] = []

    def look() -> Backlog:
        looks.append(clock.monotonic())
        clock.advance(3)
        return EMPTY

    lookout = Lookout(look, clock=clock, patience=10)
    until_looked(lookout)
    clock.advance(50)
    lookout.latest()
    assert looks == [0.0]
    assert lookout.latest().age == 50


def test_a_database_that_is_away_leaves_the_last_figures_and_counts() -> None:
    def look() -> Backlog:
        raise DatabaseUnavailable("away")

    seen = until_looked(Lookout(look, clock=FakeClock(), patience=10))
    assert (seen.backlog, seen.errors) == (None, 1)
