"""PB-028: what was made before a fork refuses to work in the child and goes on in the parent: `gunicorn --preload`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from pillarbox import Event, Outbox, install, relay_for
from pillarbox.errors import UsedAfterFork
from pillarbox.store.backlog import backlog
from pillarbox.store.engines import relay_engine
from pillarbox.store.transactions import Transactions
from pillarbox.store.wakeup import Listener
from tests.docs.test_documentation import ROOT, blocks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

REFUSED, WORKED, OTHER = 0, 1, 2


def in_child(use: Callable[[], object]) -> int:
    """Run it in a forked child."""
    child = os.fork()
    if child == 0:
        status = OTHER
        try:
            use()
            status = WORKED
        except UsedAfterFork as error:
            status = REFUSED if "PB-028" in str(error) else OTHER
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    database = f"sqlite:///{tmp_path / 'shop.db'}"
    engine = relay_engine(database)
    install(engine)
    engine.dispose()
    return database, f"embedded:///{tmp_path / 'log.db'}"


@pytest.mark.parametrize("ownership", ["partition", "row"])
def test_a_relay_that_runs_is_refused_in_the_child_and_goes_on_in_the_parent(
    urls: tuple[str, str], ownership: str
) -> None:
    relay = relay_for(*urls, ownership=ownership)  # type: ignore[arg-type]
    engine = relay_engine(urls[0])
    with relay.started():
        for use in (relay.run, relay.nudge, relay.health, lambda: relay.started().__enter__()):
            assert in_child(use) == REFUSED
        with engine.begin() as connection:
            Outbox().add(connection, Event({}, type="t", aggregate=("a", 1)), to="orders")
        relay.nudge()
        deadline = time.monotonic() + 20
        while relay.stats.sent == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert relay.stats.sent == 1
    engine.dispose()


def test_a_store_is_refused_in_the_child(urls: tuple[str, str]) -> None:
    engine = relay_engine(urls[0])
    tables = Transactions(engine)
    tables.read(backlog)
    assert in_child(lambda: tables.read(backlog)) == REFUSED
    engine.dispose()


def test_a_listener_is_refused_in_the_child(postgres_url: str) -> None:
    listener = Listener(postgres_url, lambda: None)
    assert in_child(listener.start) == REFUSED


# gunicorn ---------------------------------------------------------------------------------------------------------

APPLICATION = """
import os
from pillarbox import Event, Outbox, relay_for, sqlite_engine
from sqlalchemy.orm import Session

engine = sqlite_engine({database!r})
outbox = Outbox(bind=engine)
relay = relay_for({database!r}, {broker!r})      # the mistake: with --preload this is made before the fork

def app(environ, start_response):
    if environ["PATH_INFO"] == "/mistake":
        try:
            relay.health()
            said = "worked"
        except Exception as error:
            said = str(error)
    else:
        with Session(engine) as session, session.begin():
            said = str(outbox.add(session, Event({{}}, type="t", aggregate=("a", os.getpid())), to="orders").id)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [said.encode()]
"""


def test_gunicorn_with_preload_runs_a_relay_in_each_worker_and_refuses_the_one_made_before(
    urls: tuple[str, str], tmp_path: Path
) -> None:
    database, broker = urls
    (tmp_path / "shop_wsgi.py").write_text(APPLICATION.format(database=database, broker=broker))
    (tmp_path / "gunicorn.conf.py").write_text(dict(blocks(ROOT / "docs" / "deployment.md"))["file: gunicorn.conf.py"])
    env = os.environ | {"PILLARBOX_DATABASE": database, "PILLARBOX_BROKER": broker}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}", "shop_wsgi:app"]
    with (tmp_path / "gunicorn.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, *command], cwd=tmp_path, env=env, stdout=log, stderr=log)
    engine = relay_engine(database)
    try:
        until(lambda: "PB-028" in fetch(port, "/mistake"), tmp_path)
        until(lambda: count(engine, "SELECT COUNT(*) FROM outbox_relay") == 2, tmp_path)
        for _ in range(10):
            fetch(port, "/add")
        until(lambda: count(engine, "SELECT COUNT(*) FROM outbox_receipt") == 10, tmp_path)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        assert count(engine, "SELECT COUNT(*) FROM outbox_relay") == 0, "both relays have left in order"
    finally:
        server.kill()
        server.wait(10)
        engine.dispose()


def fetch(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        return str(error)


def count(engine: object, statement: str) -> int:
    with engine.connect() as connection:  # type: ignore[attr-defined]
        return int(connection.execute(text(statement)).scalar_one())


def until(condition: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, (folder / "gunicorn.log").read_text()[-3000:]
        time.sleep(0.05)
