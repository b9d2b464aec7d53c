"""A run of the lab that is killed leaves its places on the servers; the next one knows them and removes them."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import create_engine, make_url, text

from pillarbox.lab.grounds import refuse_foreign, remove_leftovers
from pillarbox.lab.grounds.claims import claimed_here
from tests.servers import bootstrap_of
from tests.services_fixtures import _need

PROGRAM = """
import json, os, signal, sys
from contextlib import ExitStack
from pillarbox.lab.grounds import broker_ground, database_ground

with ExitStack() as stack:
    names = []
    for url in [None, *json.loads(sys.argv[1])]:
        ground = stack.enter_context(database_ground(url, "W2-S2"))
        names += [ground.shop_url, ground.consumers_url]
    for url in [None, *json.loads(sys.argv[2])]:
        ground = stack.enter_context(broker_ground(url, "W2-S2"))
        ground.source(f"{ground.destination.name}.bell")
        names.append(ground.destination.name)
    print(json.dumps(names), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.services
def test_what_a_killed_run_has_left_is_recognised_and_removed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rabbitmq_url: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    databases = [_need(request, name).url for name in ("postgres",)]
    kafka = _need(request, "kafka").url
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(databases), json.dumps([kafka, rabbitmq_url])],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert killed.returncode == -9, killed.stderr
    names = json.loads(killed.stdout)
    expected = {str(make_url(url).database) for url in names if "://" in url and not url.startswith("sqlite")}
    folders = {str(Path(url.removeprefix("sqlite:///")).parent) for url in names if url.startswith("sqlite")}
    assert all(Path(folder).is_dir() for folder in folders)

    for url in databases:
        refuse_foreign(url, None)
    refuse_foreign(None, kafka)
    refuse_foreign(None, rabbitmq_url)

    removed = [one for url in databases for one in remove_leftovers(url, None)]
    removed += remove_leftovers(None, kafka) + remove_leftovers(None, rabbitmq_url)
    exchange, topic = names[-1], names[-2]
    assert expected <= set(removed)
    assert folders <= set(removed)
    assert {topic, exchange, f"{exchange}.audit"} <= set(removed)
    assert claimed_here() == frozenset()
    for url in databases:
        assert not expected & _databases(url)
    admin = AdminClient({"bootstrap.servers": bootstrap_of(kafka), "log_level": 0})
    until = time.monotonic() + 20
    while any(one.startswith(topic) for one in admin.list_topics(timeout=10).topics):
        assert time.monotonic() < until  # a broker that has not heard of the end yet may answer
    assert not any(Path(folder).exists() for folder in folders)
    assert remove_leftovers(databases[0], kafka) == []


def _databases(url: str) -> set[str]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            postgres = engine.dialect.name == "postgresql"
            sql = "SELECT datname FROM pg_database" if postgres else "SHOW DATABASES"
            return set(connection.scalars(text(sql)))
    finally:
        engine.dispose()
