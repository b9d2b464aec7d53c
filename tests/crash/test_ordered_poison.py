"""An event that kills the relay that sends it: it ends as dead, and nobody else does."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.embedded import EmbeddedLog
from tests.crash.ordered_lab import KEYS, Lab, wait_until
from tests.crash.poisoned_relay import relay
from tests.servers import unique

LEASE = 1.0
long = pytest.mark.long


@pytest.fixture
def lab(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(database_url, unique("orders"), tmp_path)
    yield lab
    lab.close()


@contextmanager
def poisoned_relays(lab: Lab, broker: str, count: int) -> Iterator[Path]:
    """Relays that die and come back; the path is of a file with a line for each death."""
    deaths = lab.folder / "deaths"
    command = [sys.executable, "-m", "tests.crash.poisoned_relay", lab.url, broker, str(LEASE), str(count)]
    with deaths.open("wb") as out, (lab.folder / "err").open("wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err)
        try:
            yield deaths
        finally:
            process.communicate(timeout=10)


@pytest.mark.parametrize(
    ("database_name", "parked"),
    [
        ("mysql", False),
        ("postgres", True),
        pytest.param("postgres", False, marks=long),
        pytest.param("mysql", True, marks=long),
    ],
    indirect=["database_name"],
    ids=["mysql-ready", "postgres-parked", "postgres-ready", "mysql-parked"],
)
def test_an_event_that_kills_its_relay_ends_dead_and_every_neighbour_is_delivered(lab: Lab, parked: bool) -> None:
    """Two relays share the work; about ten of them die at most."""
    broker = f"embedded://{lab.folder / 'log.db'}"
    if parked:
        _park_the_poison(lab, broker)
    else:
        lab.add("k3", payload=b"poison")
    for _ in range(30):
        lab.add(*KEYS, *KEYS)
    with poisoned_relays(lab, broker, 2) as deaths:
        wait_until(lambda: lab.one("SELECT COUNT(*) FROM outbox_parked WHERE state = 'DEAD'"), 60, "the end of it")
        wait_until(lambda: lab.one("SELECT COUNT(*) FROM outbox_ready") == 0, 30, "the rest")
        lab.add(*KEYS)
        wait_until(lambda: lab.one("SELECT COUNT(*) FROM outbox_ready") == 0, 10, "what comes later")
        died = deaths.read_text().count("died")
    print(f"{died} relays died")
    assert 3 <= died <= 10
    parked_events = "FROM outbox_parked p JOIN outbox_event e ON e.id = p.id"
    dead = lab.rows(f"SELECT e.payload, p.error {parked_events} WHERE p.state = 'DEAD'")
    assert [bytes(payload) for payload, _ in dead] == [b"poison"]
    assert "crash-loop" in dead[0][1]
    held = lab.rows(f"SELECT e.event_key {parked_events} WHERE p.state = 'HELD'")
    assert {key for (key,) in held} == {"k3"}  # they wait for a person's word on the first one
    assert lab.sent() + len(held) + 1 == lab.one("SELECT COUNT(*) FROM outbox_event")
    _in_order(lab)


def _park_the_poison(lab: Lab, broker: str) -> None:
    """Refused at first, it is to be tried again, with another event of its key behind it."""
    lab.add("k3", payload=b"poison")
    lab.add("k3")
    with relay(lab.url, broker, LEASE, "harmless", harmless=True).started():
        wait_until(lambda: lab.one("SELECT COUNT(*) FROM outbox_parked WHERE state IN ('RETRY', 'HELD')") == 2, 20)


def _in_order(lab: Lab) -> None:
    numbers = dict(lab.rows("SELECT event_id, id FROM outbox_event"))
    first: dict[str | None, dict[int, None]] = {}
    with EmbeddedLog(lab.folder / "log.db") as log:
        for record in log.records(lab.destination):
            headers = dict(record.headers)
            first.setdefault(record.key, {}).setdefault(numbers[headers["id"]])
    for key, found in first.items():
        assert list(found) == sorted(found), key
