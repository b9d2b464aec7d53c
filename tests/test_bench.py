"""The benchmark runs, and its arithmetic is right. Nothing here looks at how fast anything was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, insert, select, text

from bench import add
from bench.__main__ import main
from bench.drain import Task, turns, verify
from bench.fill import fill
from bench.job import Figures
from bench.places import Broker, fresh_database, wait_for_arrival
from bench.raw_loop import all_or_nothing
from bench.report import as_table, summarise
from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.store.install import install
from pillarbox.store.schema import outbox_event, outbox_ready, outbox_receipt

SAME_IN_BOTH = (
    outbox_event.c.event_type,
    outbox_event.c.aggregate_type,
    outbox_event.c.aggregate_id,
    outbox_event.c.event_key,
    outbox_event.c.destination,
    outbox_event.c.content_type,
)
TASK = Task("mysql", "kafka", events=1000, batch=100, rounds=3)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{tmp_path / 'outbox.db'}")
    install(engine, ["outbox"])
    return engine


def figures(wall: float) -> Figures:
    return Figures(events=1000, wall=wall, cpu=wall / 2, take=0.1, publish=0.2, settle=0.3)


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["drain", "--events", "500", "--batch", "200", "--rounds", "1", "--json", *arguments]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


class TestDrain:
    def test_it_drains_sqlite_by_product_and_by_raw_loop(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = measured(capsys, "--database", "sqlite", "--broker", "embedded", "--ownership", "row", "--profile")

        assert (found["database"], found["broker"], found["events"], found["rounds"]) == ("sqlite", "embedded", 500, 1)
        product, raw = found["product"], found["raw"]
        assert isinstance(product, dict)
        assert isinstance(raw, dict)
        assert found["ratio"] == round(product["events_per_second"] / raw["events_per_second"], 3)
        assert "function calls" in str(found["profile"])

    @pytest.mark.usefixtures("postgres_url")  # the benchmark makes databases of its own; this says what must be there
    def test_it_drains_postgresql_by_product_and_by_raw_loop(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = measured(capsys, "--database", "postgres", "--broker", "null", "--ownership", "row")

        assert set(found) >= {"product", "raw", "ratio", "versions", "payload_bytes", "batch", "machine"}
        product = found["product"]
        assert isinstance(product, dict)
        work = product["database_work_per_event"]
        assert (work["rows_inserted"], work["rows_deleted"], work["rows_updated"]) == (1.0, 1.0, 1.0)

    def test_a_missing_server_is_said_in_one_sentence(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PILLARBOX_TEST_KAFKA", "kafka://127.0.0.1:1")

        assert main(["drain", "--broker", "kafka", "--events", "10"]) == 1
        assert capsys.readouterr().err.startswith("kafka does not answer at PILLARBOX_TEST_KAFKA")


class TestAdd:
    def test_add_and_two_raw_inserts_take_turns_in_real_transactions(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["add", "--database", "sqlite", "--transactions", "30", "--json"]) == 0

        found = json.loads(capsys.readouterr().out)
        assert list(found["p50_microseconds"]) == ["business", "raw", "add"]
        assert found["transactions"] == 30

    @pytest.mark.usefixtures("postgres_url")
    def test_the_raw_inserts_leave_what_add_leaves(self) -> None:
        with fresh_database("postgres") as url:
            engine = create_engine(url)
            install(engine, ["outbox"])
            by_hand, by_add = add.by_hand(engine, {"text": "x"}), add.by_add(engine, {"text": "x"})
            with engine.begin() as connection:
                by_hand(connection, 7)
                by_add(connection, 7)
            with engine.connect() as connection:
                events = connection.execute(select(*SAME_IN_BOTH).order_by(outbox_event.c.id)).fetchall()
                work = connection.execute(select(outbox_ready.c.partition_no, outbox_ready.c.lane)).fetchall()
            engine.dispose()

        assert events[0] == events[1]
        assert work[0] == work[1]

    def test_what_add_costs_is_the_difference_of_the_medians(self) -> None:
        seconds = {"business": [0.001] * 3, "raw": [0.002] * 3, "add": [0.0025, 0.004, 0.004]}

        found = add.summarise(add.AddTask("mysql", 3), seconds)

        assert found["p50_microseconds"] == {"business": 1000, "raw": 2000, "add": 4000}
        assert found["added_microseconds"] == 2000.0
        assert found["ratio"] == 0.5
        assert add.as_table(found).splitlines()[-1] == "add costs 2,000.0 us more than raw, ratio 0.50"


class TestRounds:
    def test_product_and_raw_loop_take_turns_and_neither_always_follows_the_other(self) -> None:
        assert [side for _, side in turns(3)] == ["product", "raw", "raw", "product", "product", "raw"]

    def test_events_are_filled_as_add_would_leave_them(self, engine: Engine) -> None:
        with engine.connect() as connection:
            fill(connection, 25, "orders", 300)
            event = connection.execute(select(outbox_event).where(outbox_event.c.id == 25)).one()
            ready = connection.execute(select(outbox_ready).where(outbox_ready.c.id == 25)).one()
            count = connection.execute(select(outbox_ready)).fetchall()

        assert len(count) == 25
        assert len(event.payload) == 300
        json.loads(event.payload)
        assert (event.destination, event.event_key) == ("orders", event.aggregate_id)
        assert (ready.lane, ready.partition_no) == (lane_of(event.event_key), partition_of(lane_of(event.event_key)))
        assert set(Message._fields) - {"key"} <= set(outbox_event.c.keys())

    def test_a_round_in_which_an_event_has_no_receipt_is_no_result(self, engine: Engine) -> None:
        receipt = {"dest": 0, "sent_at": text("CURRENT_TIMESTAMP"), "relay": "raw", "token": 1}
        with engine.begin() as connection:
            for number in (1, 2):
                connection.execute(insert(outbox_receipt).values(id=number, **receipt))
        url = engine.url.render_as_string(hide_password=False)

        verify(url, 2)
        with pytest.raises(RuntimeError, match="3 events gave 2 receipts"):
            verify(url, 3)

    def test_a_round_that_leaves_work_behind_is_no_result(self, engine: Engine) -> None:
        with engine.connect() as connection:
            fill(connection, 1, "orders", 300)

        with pytest.raises(RuntimeError, match="1 are ready"):
            verify(engine.url.render_as_string(hide_password=False), 0)

    def test_a_message_too_many_is_no_result(self) -> None:
        with pytest.raises(RuntimeError, match="3 messages arrived, not 2"):
            wait_for_arrival(Broker("null:", "orders", lambda: 3), 2)

    def test_the_raw_loop_stops_when_a_row_was_lost(self) -> None:
        all_or_nothing(5, 5)
        with pytest.raises(RuntimeError, match="2 of 5 rows were lost"):
            all_or_nothing(3, 5)


class TestReport:
    def test_the_ratio_is_the_products_median_rate_over_the_raw_loops(self) -> None:
        product, raw = [figures(2.0), figures(4.0), figures(2.5)], [figures(1.0), figures(1.25), figures(9.0)]

        found = summarise(TASK, {"product": product, "raw": raw}, {"mysql": "9"})

        assert found["product"]["events_per_second"] == 400
        assert found["raw"]["events_per_second"] == 800
        assert found["ratio"] == 0.5
        assert found["product"]["rates"] == [500, 250, 400]

    def test_what_an_event_costs_is_told_by_part(self) -> None:
        found = summarise(TASK, {"product": [figures(1.0)], "raw": [figures(1.0)]}, {})

        cost = found["product"]["microseconds_per_event"]
        assert cost == {"take": 100.0, "publish": 200.0, "settle": 300.0}
        assert found["product"]["cpu_microseconds_per_event"] == 500.0

    def test_people_get_a_table(self) -> None:
        table = as_table(summarise(TASK, {"product": [figures(2.0)], "raw": [figures(1.0)]}, {}))

        assert table.splitlines()[0] == "mysql -> kafka, partition lease, 1,000 events, batch 100"
        assert table.splitlines()[-1] == "ratio 0.50"
