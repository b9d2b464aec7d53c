"""Outbox without a server: routes, what is written for a list, fault points, the statements themselves."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from pillarbox import faultpoints
from pillarbox.errors import ForeignEngine, InvalidEvent, NoDestination, NotAnEventType
from pillarbox.event.destination import Exchange
from pillarbox.event.event import Event, to_message
from pillarbox.event.ids import EventIds
from pillarbox.event.types import event_type
from pillarbox.outbox import AsyncOutbox, Outbox
from pillarbox.policy.lanes import lane_of
from pillarbox.store.engines import sqlite_engine
from pillarbox.store.install import install
from pillarbox.store.write import Row, insert_with, row_of


@event_type("order.created")
@dataclass(frozen=True)
class OrderCreated:
    total: int


@pytest.fixture
def engine() -> Iterator[Engine]:
    found = sqlite_engine("sqlite://")
    install(found)
    yield found
    found.dispose()


def column(connection: Connection, sql: str) -> list[Any]:
    return list(connection.execute(text(sql)).scalars())


# Routes -----------------------------------------------------------------------------------------------------------


def test_routes_by_class_or_name_make_to_optional_and_to_wins(engine: Engine) -> None:
    outbox = Outbox(engine, routes={OrderCreated: "orders", "order.gone": Exchange("shop", "gone")})
    with engine.begin() as connection:
        outbox.add(connection, Event(OrderCreated(1)))
        outbox.add(connection, Event({}, type="order.gone"))
        outbox.add(connection, Event(OrderCreated(1)), to="elsewhere")
        outbox.add_all(connection, [Event(OrderCreated(1)), Event({}, type="order.gone")])
        found = column(connection, "SELECT destination FROM outbox_event ORDER BY id")
        keys = column(connection, "SELECT routing_key FROM outbox_event ORDER BY id")
    assert found == ["orders", "shop", "elsewhere", "orders", "shop"]
    assert keys == [None, "gone", None, None, "gone"]


def test_an_event_without_destination_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        with pytest.raises(NoDestination, match=r"PB-014.*'order\.created'"):
            Outbox(engine).add(connection, Event(OrderCreated(1)))
        with pytest.raises(NoDestination, match="empty"):
            Outbox(engine).add(connection, Event(OrderCreated(1)), to="")


def test_routes_are_checked_when_the_outbox_is_made() -> None:
    with pytest.raises(NoDestination):
        Outbox(routes={"a": ""})
    with pytest.raises(NotAnEventType):
        Outbox(routes={dict: "orders"})
    with pytest.raises(NoDestination):
        AsyncOutbox(routes={"a": []})


def test_bind_takes_an_engine_and_nothing_else() -> None:
    with pytest.raises(ForeignEngine, match="bind takes an Engine, got str"):
        Outbox("sqlite://")  # type: ignore[arg-type]


# Lists ------------------------------------------------------------------------------------------------------------


def test_an_id_twice_in_one_list_is_refused_before_anything_is_written(engine: Engine) -> None:
    own = EventIds().new()
    with engine.begin() as connection:
        with pytest.raises(InvalidEvent, match=f"twice.*{own}"):
            Outbox(engine).add_all(connection, [Event({}, type="t", id=own)] * 2, to="orders")
        assert column(connection, "SELECT id FROM outbox_event") == []


def test_events_may_come_from_a_generator_that_reads_the_same_session(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        made = (Event({"n": n}, type="t") for n in session.execute(text("SELECT 1 UNION SELECT 2")).scalars())
        assert len(Outbox(engine).add_all(session, made, to="orders")) == 2


def test_the_given_clock_says_when_it_happened(engine: Engine) -> None:
    class Then:
        def now(self) -> datetime:
            return datetime(2020, 1, 1, tzinfo=UTC)

        def monotonic(self) -> float:
            return 0.0

    with engine.begin() as connection:
        Outbox(engine, clock=Then()).add(connection, Event({}, type="t"), to="orders")
        assert column(connection, "SELECT occurred_at FROM outbox_event") == ["2020-01-01 00:00:00.000000"]


def test_events_of_one_key_share_a_lane_and_events_without_a_key_have_their_own(engine: Engine) -> None:
    with engine.begin() as connection:
        outbox = Outbox(engine)
        for aggregate in (("order", 7), ("invoice", "7"), None, None):
            outbox.add(connection, Event({}, type="t", aggregate=aggregate), to=["a", "b"])
        lanes = column(connection, "SELECT lane FROM outbox_ready WHERE dest = 0 ORDER BY id")
        assert lanes[:2] == [lane_of("7")] * 2
        assert len(set(lanes)) == 3
        assert column(connection, "SELECT count(*) FROM outbox_ready WHERE partition_no <> lane % 16") == [0]


# Fault points -----------------------------------------------------------------------------------------------------


@pytest.fixture
def reached() -> Iterator[list[str]]:
    found: list[str] = []
    faultpoints.attach(found.append)
    yield found
    faultpoints.attach(None)


def test_fault_points_are_reached_around_a_commit_that_has_events_and_at_no_other(
    tmp_path: Path, reached: list[str]
) -> None:
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'a.db'}")
    install(engine)
    outbox = Outbox(engine)
    with Session(engine) as session:
        session.execute(text("SELECT 1"))
        session.commit()
        outbox.add(session, Event({}, type="t"), to="orders")
        session.rollback()
        assert reached == []
        outbox.add(session, Event({}, type="t"), to="orders")
        event.listen(session, "after_commit", lambda _: reached.append("after_commit"))
        session.commit()
        assert reached == ["outbox.before-commit", "after_commit", "outbox.after-commit"]
    with engine.begin() as connection:
        outbox.add(connection, Event({}, type="t"), to="orders")
        reached.clear()
    assert reached == ["outbox.before-commit", "outbox.after-commit"]
    engine.dispose()


def test_a_crash_before_the_commit_leaves_nothing_and_one_after_it_leaves_both(tmp_path: Path) -> None:
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'a.db'}")
    install(engine)
    for point, written in (("outbox.before-commit", 0), ("outbox.after-commit", 1)):
        code = (
            "import os, sys; from pillarbox import faultpoints; from pillarbox.outbox import Outbox\n"
            "from pillarbox.event.event import Event; from pillarbox.store.engines import sqlite_engine\n"
            "faultpoints.attach(lambda name: os._exit(9) if name == sys.argv[2] else None)\n"
            "engine = sqlite_engine(sys.argv[1])\n"
            "with engine.begin() as connection:\n"
            "    Outbox(engine).add(connection, Event({}, type='t'), to='orders')\n"
        )
        url = engine.url.render_as_string(False)
        assert subprocess.run([sys.executable, "-c", code, url, point], timeout=60, check=False).returncode == 9
        with engine.connect() as connection:
            assert column(connection, "SELECT count(*) FROM outbox_event") == [written]
    engine.dispose()


# Statements -------------------------------------------------------------------------------------------------------


class Recorder:
    """An executor that is not SQLAlchemy's: it notes the statements and gives ids."""

    bytes_as_hex = False

    def __init__(self) -> None:
        self.statements: list[tuple[str, int]] = []

    def inserted(self, sql: str, parameters: Sequence[object]) -> int:
        assert sql.count("?") == len(parameters)
        self.statements.append((sql, sum(len(one) for one in parameters if isinstance(one, bytes))))
        return 41

    def insert_each(self, sql: str, parameters: Sequence[Sequence[object]]) -> None:
        assert all(sql.count("?") == len(one) for one in parameters)
        self.statements.append((sql, len(parameters)))

    def returned(self, sql: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        assert sql.count("?") == len(parameters)
        self.statements.append((sql, len(parameters)))
        first = parameters[0] if isinstance(parameters[0], list) else parameters
        return [(event_id, number) for number, event_id in enumerate(first)] if "event_id, id" in sql else [(41,)]


def rows(count: int, size: int = 100) -> list[Row]:
    ids, moment = EventIds(), datetime(2026, 1, 1, tzinfo=UTC)
    draft = Event(b"x" * size, type="t", content_type="application/x")
    to = Exchange("x", "k")
    limit = {"max_payload_bytes": 10**9}
    return [row_of(to_message(draft, to, event_id=ids.new(), occurred_at=moment, **limit)) for _ in range(count)]


@pytest.mark.parametrize(
    ("dialect", "one", "many"), [("postgresql", 1, 1), ("mysql", 2, 3), ("mariadb", 2, 3), ("sqlite", 2, 3)]
)
def test_any_executor_can_run_the_writes(dialect: str, one: int, many: int) -> None:
    recorder = Recorder()
    assert insert_with(recorder, dialect, rows(1)) == [41]
    assert len(recorder.statements) == one
    recorder = Recorder()
    assert insert_with(recorder, dialect, rows(500)) == list(range(500))
    assert len(recorder.statements) == many
    assert insert_with(recorder, dialect, []) == []


def test_no_statement_for_mysql_outgrows_its_packet_and_a_large_event_has_its_own() -> None:
    recorder = Recorder()
    insert_with(recorder, "mysql", [*rows(40, 100_000), *rows(1, 3_000_000), *rows(2_500, 10)])
    inserts = [size for sql, size in recorder.statements if sql.startswith("INSERT INTO outbox_event")]
    assert max(size for size in inserts if size != 3_000_000) <= 1_048_576 / 2
    assert inserts.count(3_000_000) == 1
    assert max(sql.count("(?,") for sql, _ in recorder.statements if "outbox_event" in sql) <= 1_000


# Packaging --------------------------------------------------------------------------------------------------------


def test_the_wheel_brings_the_migrations(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=root,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "pillarbox/store/migrations/outbox/v0001_tables.py" in names
    assert "pillarbox/store/migrations/inbox/v0001_table.py" in names


def test_importing_the_outbox_brings_no_broker_client_and_no_driver() -> None:
    code = (
        "import sys, pillarbox.outbox, pillarbox.inbox, pillarbox.store.install\n"
        "print({'pika', 'confluent_kafka', 'pymysql', 'psycopg', 'pydantic', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
