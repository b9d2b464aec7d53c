"""The soak, short: real processes are killed and frozen, links are cut, and then every event is accounted for."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from pillarbox.event.destination import Topic
from pillarbox.lab.grounds import broker_ground, database_ground
from pillarbox.lab.soak import SoakOptions, SoakResult, balance, run_soak
from pillarbox.lab.soak import tables as soak_tables
from pillarbox.lab.soak.reading import read_books
from pillarbox.lab.soak.report import JSON_NAME, PAGE_NAME, page
from pillarbox.lab.soak.roles import Withdrawn, adding, engine_for
from pillarbox.lab.soak.suspects import replay_suspects
from tests.soak_servers import PAIRS

CONSUMER = "pillarbox_lab_notifier"


def told(result: SoakResult) -> str:
    """What a failing test prints."""
    return page(result)[:20_000]


def check(result: SoakResult) -> None:
    assert result.passed, told(result)
    assert result.accounts.business > 50, told(result)
    assert result.accounts.applied == result.accounts.business


def test_a_short_soak_without_any_server_loses_invents_and_repeats_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pillarbox", "lab", "soak", "--minutes", "0.07", "--kill-every", "300ms", "--json"]
    command += ["--relays", "2", "--rate", "60", "--keys", "10", "--drain", "60", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    found = json.loads(done.stdout)
    figures = found["figures"]
    assert found["passed"]
    assert figures["kills"] >= 6, figures
    assert figures["events committed"] == figures["applied"] > 50, figures
    assert figures["losses"] == figures["ghosts"] == figures["applied twice"] == figures["order breaks"] == 0
    assert [name for name in found["kills_by_point"] if "." in name], "nobody was killed at a point of its work"
    assert "none lost, none invented, none applied twice" in (tmp_path / PAGE_NAME).read_text()
    assert json.loads((tmp_path / JSON_NAME).read_text())["figures"] == figures


@pytest.mark.timeout(240)
def test_a_short_soak_on_postgresql_and_rabbitmq_with_broken_links(postgres_url: str, rabbitmq_url: str) -> None:
    options = SoakOptions(
        seconds=8, kill_every=0.3, database=postgres_url, broker=rabbitmq_url, rate=150, drain=60, seed=3
    )
    result = run_soak(options)
    check(result)
    assert result.kills >= 12, told(result)
    assert result.count("link") > 0, told(result)
    assert result.count("freeze") > 0, told(result)
    assert result.links_absent == {}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ownership", ["partition", "row"])
def test_two_minutes_on_mysql_and_kafka(mysql_url: str, kafka_url: str, ownership: str) -> None:
    options = SoakOptions(
        seconds=120,
        kill_every=0.5,
        database=mysql_url,
        broker=kafka_url,
        ownership=ownership,  # type: ignore[arg-type]
        drain=180,
    )
    result = run_soak(options)
    check(result)
    assert result.kills >= 200, told(result)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAIRS)
def test_a_soak_goes_through_restarts_of_its_database_and_its_broker(name: str, tmp_path: Path) -> None:
    with PAIRS[name]() as pair:
        options = SoakOptions(
            seconds=60,
            kill_every=0.5,
            database=pair.database,
            broker=pair.broker,
            disturb=tuple(one.command for one in pair.commands),
            disturb_times=4,
            out=tmp_path,
        )
        result = run_soak(options)
        assert sum(one.times for one in pair.commands) == 4, [one.errors for one in pair.commands]
    check(result)
    assert result.kills >= 90, told(result)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", PAIRS)
def test_a_thousand_kills_in_ten_minutes(name: str, tmp_path: Path) -> None:
    with PAIRS[name]() as pair:
        commands = tuple(one.command for one in pair.commands)
        result = run_soak(
            SoakOptions(
                seconds=600,
                kill_every=0.5,
                database=pair.database,
                broker=pair.broker,
                disturb=commands,
                drain=300,
                out=tmp_path,
            )
        )
    check(result)
    assert result.kills >= 1000, told(result)


# The account itself, on real rows ------------------------------------------------------------------------------------


def test_the_account_of_real_tables_finds_what_was_done_to_them() -> None:
    with database_ground(None, "soak") as database, broker_ground(None, "soak") as broker:
        shop, consumers = engine_for(database.shop_url), engine_for(database.consumers_url)
        soak_tables.make(shop, 4)
        add = adding(shop, broker.destination)
        add(["d0000", "d0001"])
        with pytest.raises(Withdrawn):
            add(["d0002"], withdraw=True)
        with shop.begin() as connection:  # one waits for a relay, of the other nothing is left
            connection.execute(text("DELETE FROM outbox_ready WHERE id = (SELECT MIN(id) FROM outbox_event)"))
        with consumers.begin() as connection:
            for _ in range(2):
                connection.execute(
                    text("INSERT INTO lab_notification (consumer, event_id) VALUES (:consumer, 'nobody''s')"),
                    {"consumer": CONSUMER},
                )
        books = read_books(database.shop_url, database.consumers_url, CONSUMER, broker.records())
        shop.dispose()
        consumers.dispose()
    accounts = balance(books)
    assert len(books.business) == 2
    assert accounts.count("loss") == 1
    assert accounts.count("unfinished") == 1
    assert accounts.count("ghost") == 1
    assert accounts.count("applied twice") == 1
    assert not accounts.balanced


@pytest.mark.parametrize(("error", "replayed"), [("crash-loop: 3 relays died", 1), ("refused: too large", 0)])
def test_only_dead_letters_that_random_kills_explain_are_replayed(error: str, replayed: int) -> None:
    with database_ground(None, "soak") as database:
        shop = engine_for(database.shop_url)
        soak_tables.make(shop, 1)
        adding(shop, Topic("anywhere"))(["d0000"])
        with shop.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, attempts, error, error_at)"
                    " SELECT partition_no, lane, id, dest, 'DEAD', 1, :error, CURRENT_TIMESTAMP FROM outbox_ready"
                ),
                {"error": error},
            )
            connection.execute(text("DELETE FROM outbox_ready"))
        assert replay_suspects(database.shop_url) == replayed
        assert replay_suspects(database.shop_url) == 0
        with shop.connect() as connection:
            reasons = connection.execute(text("SELECT reason FROM outbox_replay")).scalars().all()
        shop.dispose()
    assert len(reasons) == replayed


# What is left when the lab itself is killed ---------------------------------------------------------------------------


def test_processes_end_with_the_lab_also_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pillarbox.lab.soak.forking"]
    task = {"shop_url": f"sqlite:///{tmp_path / 'none.db'}", "seed": "1", "keys": 1, "destination": ["t", None]}
    order = {"do": "start", "name": "writer-0", "role": "writer", "log": str(tmp_path / "log")}
    order["task"] = task | {"rate": 1, "withdrawn": 0}
    nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps(order).encode() + b"\n")
    nursery.stdin.flush()
    child = json.loads(nursery.stdout.readline())["pid"]
    nursery.kill()
    nursery.wait(10)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and b"Z" not in Path(f"/proc/{child}/stat").read_bytes().split()[2:3]:
        assert time.monotonic() < deadline, "a process outlived the lab"
        os.sched_yield()
