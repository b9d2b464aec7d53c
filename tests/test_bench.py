"""The benchmark runs, and its arithmetic is right. Nothing here looks at how fast anything was."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sqlalchemy import Engine, create_engine, insert, select, text

from bench import add, debezium
from bench.__main__ import main, parser
from bench.bulk import Bulk, bulk, hold, show
from bench.connector import configuration
from bench.counters import Counters, difference, own_account, per_event
from bench.drain import Task, turns, verify
from bench.figures import BEGIN, END, page, replaced
from bench.fill import fill
from bench.graph import Pair, bars
from bench.job import Figures
from bench.latency import spread
from bench.passage import Passage
from bench.places import Broker, fresh_database, installed, wait_for_arrival
from bench.raw_loop import all_or_nothing
from bench.report import as_table, summarise
from bench.runs import RUNS
from bench.steady import by_window
from pillarbox.event.message import Message, to_headers
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.store.install import install
from pillarbox.store.schema import outbox_event, outbox_lane, outbox_ready, outbox_receipt

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
        assert work["rows_written"] == pytest.approx(3, abs=0.1)

    def test_a_missing_server_is_said_in_one_sentence(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PILLARBOX_TEST_KAFKA", "kafka://127.0.0.1:1")

        assert main(["drain", "--broker", "kafka", "--events", "10"]) == 1
        assert capsys.readouterr().err.startswith("kafka does not answer at PILLARBOX_TEST_KAFKA")


class TestConsume:
    @pytest.mark.parametrize("database", ["postgres", "mysql"])
    def test_a_consumer_and_a_raw_loop_take_turns_and_each_event_has_its_row(
        self, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, database: str
    ) -> None:
        request.getfixturevalue(f"{database}_url")
        sizes = ["--single", "20", "--batched", "100", "--batch", "30", "--rounds", "1"]
        assert main(["consume", "--database", database, *sizes, "--json"]) == 0

        found = json.loads(capsys.readouterr().out)
        for kind in ("single", "batched"):
            rates = found[kind]["events_per_second"]
            assert found[kind]["ratio"] == pytest.approx(rates["product"] / rates["raw"], abs=0.05)
            assert found[kind]["cpu_microseconds_per_event"]["product"] > 0


class TestAdd:
    def test_add_and_two_raw_inserts_take_turns_in_real_transactions(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["add", "--database", "sqlite", "--transactions", "30", "--json"]) == 0

        found = json.loads(capsys.readouterr().out)
        assert list(found["p50_microseconds"]) == ["business", "raw", "add", "raw call", "add call"]
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
        assert found["ratio"] == 2.0
        assert add.as_table(found).splitlines()[-1] == "add costs 2,000.0 us more than raw, ratio 2.00"


QUICK = {
    "latency": "--broker kafka --rate 50 --seconds 1 --rounds 1",
    "idle": "--seconds 1 --events 1 --rest 0.2",
    "add": "--database sqlite --transactions 30",
    "inbox": "--database sqlite --events 50 --batch 50 --rounds 1",
    "write": "--transactions 20",
    "history": "--sent 2000 --pending 500 --batch 100",
    "relays": "--events 500 --batch 100 --rounds 1 --relays 1 2",
    "memory": "--pending 500",
    "parked": "--events 300 --rounds 1",
    "outage": "--events 500 --seconds 0.5",
    "publish": "--messages 300 --batch 100 --rounds 1",
    "steady": "--broker null --minutes 0.05 --rate 50",
    "hotkey": "--database sqlite --events 300 --batch 100 --rounds 1",
}


class TestEachCommand:
    @pytest.mark.usefixtures("postgres_url", "kafka_url", "rabbitmq_url")
    @pytest.mark.parametrize("command", QUICK)
    def test_it_runs_and_says_on_what_machine(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([command, *QUICK[command].split(), "--json"]) == 0

        found = json.loads(capsys.readouterr().out)
        assert found["machine"]["cores"] >= 1
        assert len(found["machine"]["load_average_before"]) == 3
        assert 0 <= found["machine"]["busy_before"] <= 1

    def test_each_recorded_run_is_a_command_that_the_bench_knows(self) -> None:
        for one in RUNS:
            parser().parse_args(one.arguments.split())
        assert len({one.name for one in RUNS}) == len(RUNS)


class TestBulk:
    def test_history_and_backlog_are_what_add_and_a_relay_leave(self, engine: Engine) -> None:
        url = engine.url.render_as_string(hide_password=False)
        bulk(url, Bulk(sent=30, pending=20, destination="orders"))
        with engine.connect() as connection:
            event = connection.execute(select(outbox_event).where(outbox_event.c.id == 31)).one()
            ready = connection.execute(select(outbox_ready).order_by(outbox_ready.c.id)).fetchall()
            receipts = connection.execute(select(outbox_receipt)).fetchall()

        assert [row.id for row in ready] == list(range(31, 51))
        assert len(receipts) == 30
        assert (ready[0].lane, ready[0].partition_no) == (
            lane_of(event.event_key),
            partition_of(lane_of(event.event_key)),
        )
        assert len(event.event_id) == 36
        assert len(json.loads(event.payload)["text"]) == 289

    def test_work_may_appear_at_one_moment_and_behind_a_dead_event(self, engine: Engine) -> None:
        url = engine.url.render_as_string(hide_password=False)
        bulk(url, Bulk(sent=1, pending=3, destination="orders", keys=1, shown=False))
        hold(url, "orders")
        with engine.connect() as connection:
            before = connection.execute(select(outbox_ready)).fetchall()
        show(url)
        with engine.connect() as connection:
            after = connection.execute(select(outbox_ready)).fetchall()
            held = connection.execute(select(outbox_lane)).one()

        assert (len(before), len(after)) == (0, 3)
        assert (held.lane, held.partition_no) == (after[0].lane, after[0].partition_no)


class TestCounters:
    @pytest.mark.parametrize("server", ["postgres", "mysql"])
    def test_they_tell_what_one_account_wrote_and_read(self, server: str, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue(f"{server}_url")
        with fresh_database(server) as url, own_account(url) as own:
            installed(url)
            bulk(url, Bulk(0, 100, "orders"))
            counters = Counters(url, own)
            before = counters.settled()
            worker = create_engine(own)
            with worker.begin() as connection:
                gone = connection.execute(outbox_ready.delete()).rowcount
            worker.dispose()
            counted = difference(counters.settled(), before)
            counters.close()

        assert gone == 100
        assert per_event(counted, 100)["rows_deleted"] == 1.0
        assert counted["rows_written"] == 100
        assert counted["commits"] >= 1


class TestFigures:
    def test_latency_is_the_time_from_the_commit_to_the_first_sight_of_an_event(self) -> None:
        commits = [(f"e{n}", n * 1_000_000) for n in range(100)]
        seen = [(event_id, moment + 2_000_000) for event_id, moment in commits]

        assert spread(commits, [*seen, ("e0", 10**12)]) == {"p50": 2.0, "p99": 2.0, "max": 2.0, "events": 100}

    def test_a_steady_run_is_cut_into_windows_by_the_moment_of_the_commit(self) -> None:
        commits = [(f"e{n}", n * 1_000_000) for n in range(100)]
        seen = [(event_id, moment + (1 + n // 50) * 1_000_000) for n, (event_id, moment) in enumerate(commits)]

        assert [one["p50"] for one in by_window(commits, seen, 4)] == [1.0, 1.0, 2.0, 2.0]

    def test_a_graph_is_an_svg_that_is_read_on_light_and_on_dark_ground(self) -> None:
        svg = bars("A backlog", ("product", "raw <loop>"), [Pair("MySQL & Kafka", 10.0, 20.0)], "/s")

        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "prefers-color-scheme:dark" in svg
        assert "10.0 /s" in svg

    def test_new_figures_take_the_place_of_the_old_ones(self) -> None:
        assert replaced(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"


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


class TestDebezium:
    def test_the_ratio_is_the_relays_median_rate_over_each_configurations(self) -> None:
        rates = {"default": [100, 300, 200], "tuned": [400, 400, 1], "relay": [500, 600, 400]}
        passages = {side: [Passage(one, one, 1.0) for one in ones] for side, ones in rates.items()}

        found = debezium.summarise(debezium.Task(1000, 3, 100, 300), passages, {})

        assert found["events_per_second"] == {"default": 200, "tuned": 400, "relay": 500}
        assert found["ratio"] == {"default": 2.5, "tuned": 1.25}
        assert debezium.table(found).splitlines()[-1] == "relay : tuned 1.25"

    def test_the_page_has_a_row_for_it(self) -> None:
        passages = {side: [Passage(1000, 1000, 1.0)] for side in debezium.SIDES}
        found = debezium.summarise(debezium.Task(1000, 1, 100, 300), passages, {})
        found["machine"] |= {"load_average_before": [9.0, 9.0, 9.0], "busy_before": 0.02}

        shown = page({"debezium-mysql-kafka": found}, {})

        assert "| MySQL → Kafka | 1,000 | 1,000 | 1,000 | 1.00 | 1.00 |" in shown
        assert "rate at the topic, relay : Debezium as it comes | ≥ 1 | 1 | met | 2% |" in shown

    def test_both_configurations_send_the_headers_that_the_relay_sends(self) -> None:
        default, tuned = (
            configuration("mysql+pymysql://u:p@h:1/shop", "k:9", "orders", "name", 7, tuning)
            for tuning in ("default", "tuned")
        )
        now = datetime.now(UTC)
        message = Message("id", "t", 1, "order", "7", "7", now, None, "text/plain", b"", "orders", None)
        sent = {name for name, _ in to_headers(message)} - {"id"}
        assert sent == {
            one.split(":")[2] for one in default["transforms.outbox.table.fields.additional.placement"].split(",")
        }
        assert default.items() <= tuned.items()
        assert default["table.include.list"] == "shop.outbox_event"
