"""Slices of the matrix on real servers: the links are cut, the processes killed, and the servers say what is left."""

import pytest

from pillarbox.lab.model import CellKey, CellResult, Outcome, Planned, Run
from pillarbox.lab.options import LabOptions
from pillarbox.lab.running import run_lab
from tests.kafka_broker import kafka_broker

pytestmark = pytest.mark.timeout(200)


def run(database: str, broker: str, *cells: str, rounds: int = 2) -> dict[str, CellResult]:
    """Run these cells and no others."""
    windows, strategies = zip(*(cell.split("-", 1) for cell in cells), strict=True)
    done = run_lab(
        LabOptions(database, broker, windows=tuple(set(windows)), strategies=tuple(set(strategies)), rounds=rounds)
    )
    as_expected(done)
    return {str(one.key): one for one in done.cells}


def as_expected(done: Run) -> None:
    """Every cell that was planned has run, and showed what is expected of it."""
    ran = [one for one in done.cells if isinstance(one.plan, Planned)]
    assert ran
    assert {str(one.key): one.trouble for one in ran if one.trouble} == {}
    assert {str(one.key): one.surprises for one in ran if one.surprises} == {}


def test_kafka_behind_mysql_loses_after_the_commit_and_nothing_with_the_outbox(mysql_url: str, kafka_url: str) -> None:
    cells = run(mysql_url, kafka_url, "W2-S2", "B4-S4", "W2-S5-partition")
    assert cells["W2-S2"].count(Outcome.LOSS) == 2
    assert cells["W2-S4"].count(Outcome.LOSS) == 2
    assert cells["B4-S4"].count(Outcome.LOSS) == 2
    assert cells["W2-S5-partition"].count(Outcome.NOTHING) == 2
    assert cells["W2-S2"].before["replication_factor"] == 3
    assert cells["W2-S2"].settings["sender.idempotence"] is True


def test_rabbitmq_behind_postgresql_answers_lost_on_the_way(postgres_url: str, rabbitmq_url: str) -> None:
    cells = run(postgres_url, rabbitmq_url, "W3-S5-row", "B2-S2")
    assert cells["W3-S5-row"].count(Outcome.DUPLICATE) > 0
    assert cells["W3-S5-row"].settings["fault_server"] == "broker"
    assert cells["B2-S2"].count(Outcome.LOSS) == 2
    assert cells["B2-S5-row"].count(Outcome.NOTHING) == 2


def test_rabbitmq_s_consumers_raced(postgres_url: str, rabbitmq_url: str) -> None:
    cells = run(postgres_url, rabbitmq_url, "W4r-C1", "W4r-C2")
    assert cells["W4r-C1"].count(Outcome.TWICE) == 2
    assert cells["W4r-C2"].count(Outcome.NOTHING) == 2


@pytest.mark.long
def test_kafka_s_consumers_killed_and_raced(mysql_url: str, kafka_url: str) -> None:
    cells = run(mysql_url, kafka_url, "W4-C2", "W4r-C1", "W4-CA")
    assert cells["W4r-C1"].count(Outcome.TWICE) == 2
    assert cells["W4r-C2"].count(Outcome.NOTHING) == 2
    assert cells["W4-CA"].count(Outcome.SKIPPED) == 2


@pytest.mark.long
def test_kafka_s_answers_are_lost_on_the_way(mysql_url: str) -> None:
    """Through the proxy before a broker that advertises it."""
    with kafka_broker() as broker:
        broker.proxy.close()  # the lab's own listens there now
        via = f"127.0.0.1:{broker.proxy.port}=127.0.0.1:{broker.ports.plain}"
        options = LabOptions(
            mysql_url,
            f"kafka://{broker.direct}",
            windows=("W3",),
            rounds=3,
            kafka_via=via,
        )
        done = run_lab(options)
    as_expected(done)
    cells = {one.key.strategy: one for one in done.cells if one.ran}
    assert set(cells) == {"S1", "S2", "S3", "S4", "S5-row", "S5-partition"}
    assert cells["S1"].settings["fault"] == "LoseAnswer"
    assert cells["S1"].count(Outcome.GHOST) == 3


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("database", "broker"), [("mysql", "kafka"), ("postgres", "rabbitmq"), ("mariadb102", "rabbitmq")]
)
def test_the_full_matrix(database: str, broker: str, request: pytest.FixtureRequest) -> None:
    urls = (request.getfixturevalue(f"{name}_url") for name in (database, broker))
    done = run_lab(LabOptions(*urls, rounds=20))
    as_expected(done)
    assert CellKey("W3r", "S5-row") in {one.key for one in done.cells if one.ran}
