"""The embedded log on a real file: groups, processes, kills, and files that cannot be used."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pillarbox.embedded import EmbeddedLog, NewRecord, Record
from pillarbox.embedded.file import explain
from pillarbox.errors import AccessRefused, BadUrl, BrokerUnavailable
from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed, Unavailable
from pillarbox.publish.embedded import EmbeddedPublisher
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message, messages


class Now:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


def fill(log: EmbeddedLog, count: int, topic: str = "t", keys: int = 20) -> None:
    log.append([NewRecord(topic, f"k-{n % keys}", [("n", str(n))], str(n).encode()) for n in range(count)])


def places(records: list[Record]) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for record in records}


# Topics and positions -----------------------------------------------------------------------------------------------


def test_a_batch_is_appended_whole_or_not_at_all(path: Path) -> None:
    with EmbeddedLog(path) as log:
        fill(log, 10)
        bad = NewRecord("t", "k", [], "no bytes")  # type: ignore[arg-type]
        with pytest.raises((TypeError, BrokerUnavailable)):
            log.append([NewRecord("t", "k", [], b"x"), bad._replace(body=object())])  # type: ignore[arg-type]
        assert log.topics() == {"t": 10}
        assert len(log.records("t")) == 10


def test_a_key_keeps_its_partition_and_order_and_keyless_records_spread(path: Path) -> None:
    with EmbeddedLog(path, partitions=4) as log:
        fill(log, 200)
        log.append([NewRecord("free", None, [], b"") for _ in range(8)])
        records = log.records("t")
        for key in {record.key for record in records}:
            same = [record for record in records if record.key == key]
            assert len({record.partition for record in same}) == 1
            assert [int(record.body) for record in same] == sorted(int(record.body) for record in same)
        assert {record.partition for record in log.records("free")} == {0, 1, 2, 3}


def test_offsets_have_no_gaps_with_several_writers(path: Path) -> None:
    code = (
        "import sys; from pillarbox.embedded import EmbeddedLog, NewRecord\n"
        "log = EmbeddedLog(sys.argv[1], busy_timeout=30)\n"
        "for n in range(50): log.append([NewRecord('t', str(k), [], b'x') for k in range(10)])"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    with EmbeddedLog(path) as log:
        records = log.records("t")
        assert len(records) == 2_000
        for number in {record.partition for record in records}:
            offsets = [record.offset for record in records if record.partition == number]
            assert offsets == list(range(len(offsets)))


# Groups -------------------------------------------------------------------------------------------------------------


def test_each_group_reads_everything_once_and_goes_on_after_its_commit(path: Path) -> None:
    with EmbeddedLog(path) as log:
        fill(log, 50)
        first = log.read("a", ["t"], 30)
        log.commit("a", first)
        assert len(places(first)) == 30
        assert len(log.read("b", ["t"], 100)) == 50
        assert sum(log.lag("a").values()) == 20
    with EmbeddedLog(path) as log:
        rest = log.read("a", ["t"], 100)
        assert len(rest) == 20
        assert not places(first) & places(rest)


def test_what_was_read_and_not_committed_comes_again_after_a_restart(path: Path) -> None:
    with EmbeddedLog(path) as log:
        fill(log, 10)
        first = log.read("g", ["t"], 10)
        assert log.read("g", ["t"], 10) == []  # in flight: not handed out twice
    with EmbeddedLog(path) as log:
        assert places(log.read("g", ["t"], 10)) == places(first)


def test_the_position_moves_only_up_to_the_first_unfinished_record(path: Path) -> None:
    with EmbeddedLog(path, partitions=1) as log:
        fill(log, 10)
        records = log.read("g", ["t"], 10)
        log.commit("g", records[5:])
        assert log.lag("g") == {"t": 10}
        log.commit("g", records[:3])
        assert log.lag("g") == {"t": 7}
        log.commit("g", records[3:5])
        assert log.lag("g") == {"t": 0}


def test_members_share_the_partitions_and_a_dead_one_is_replaced_after_its_lease(path: Path) -> None:
    now = Now()
    with EmbeddedLog(path, now=now, lease=10) as one, EmbeddedLog(path, now=now, lease=10) as two:
        fill(one, 100)
        one.commit("g", one.read("g", ["t"], 1_000))
        assert two.read("g", ["t"], 10) == []
        now.seconds += 2
        one.read("g", ["t"], 1)  # sees the newcomer and gives up half
        now.seconds += 2
        two.read("g", ["t"], 1)  # takes it
        fill(one, 100)
        mine, its = one.read("g", ["t"], 1_000), two.read("g", ["t"], 1_000)
        assert len(mine) + len(its) == 100
        assert len({record.partition for record in mine}) == len({record.partition for record in its}) == 2
        now.seconds += 9
        assert one.read("g", ["t"], 1_000) == [], "the other one's lease has not ended"
        now.seconds += 9
        assert places(one.read("g", ["t"], 1_000)) == places(its)
        assert two.commit("g", its) == 2, "it was replaced: its commit is refused"
        assert sum(one.lag("g").values()) == 100


def test_a_clock_that_is_set_back_blocks_nobody(path: Path) -> None:
    now = Now()
    with EmbeddedLog(path, now=now, lease=10) as one, EmbeddedLog(path, now=now, lease=10) as two:
        fill(one, 10)
        one.read("g", ["t"], 10)
        now.seconds -= 500
        assert len(two.read("g", ["t"], 10)) == 10


def test_a_reader_waits_for_another_process_to_write(path: Path) -> None:
    with EmbeddedLog(path) as log:
        assert log.read("g", ["t"], 1) == []
        code = (
            "import sys; from pillarbox.embedded import EmbeddedLog, NewRecord\n"
            "EmbeddedLog(sys.argv[1]).append([NewRecord('t', 'k', [], b'x')])"
        )
        writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
        assert [record.body for record in log.read("g", ["t"], 1, timeout=30)] == [b"x"]
        assert writer.wait(30) == 0


def test_processes_of_one_group_never_hold_one_partition_at_once(path: Path) -> None:
    with EmbeddedLog(path, partitions=8) as log:
        fill(log, 400)
    code = (
        "import sys; from pillarbox.embedded import EmbeddedLog\n"
        "with EmbeddedLog(sys.argv[1], busy_timeout=30) as log:\n"
        "    while records := log.read('g', ['t'], 7, timeout=2.5):\n"
        "        for record in records: print(record.partition, record.offset, flush=True)\n"
        "        log.commit('g', records)"
    )
    readers = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    lines = [line for reader in readers for line in reader.communicate(timeout=60)[0].splitlines()]
    assert len(lines) == len(set(lines)) == 400


# Kills --------------------------------------------------------------------------------------------------------------


def test_what_was_confirmed_survives_kill_9(path: Path) -> None:
    code = (
        "import sys; from pillarbox.embedded import EmbeddedLog, NewRecord\n"
        "log = EmbeddedLog(sys.argv[1])\n"
        "while True:\n"
        "    for place in log.append([NewRecord('t', str(k), [], b'x' * 2000) for k in range(20)]):\n"
        "        print(*place)\n"
        "    sys.stdout.flush()"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(300)]
    writer.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    lines += writer.communicate(timeout=30)[0].splitlines(keepends=True)
    confirmed = {tuple(map(int, line.split())) for line in lines if line.endswith("\n")}
    with EmbeddedLog(path) as log:
        assert confirmed <= places(log.records("t"))
        fill(log, 10)  # and it goes on
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Files that cannot be used --------------------------------------------------------------------------------------------


def test_a_bad_path_is_named_with_its_fix(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"this is no database at all" * 100)
    foreign = tmp_path / "app.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    for where, word in (
        (tmp_path, "directory"),
        (tmp_path / "no" / "such" / "folder.log", "mkdir -p"),
        (garbage, "no Pillarbox log"),
        (foreign, "a file of its own"),
    ):
        with pytest.raises(BadUrl) as caught:
            open_publisher(f"embedded://{where}")
        assert word in str(caught.value)
        assert str(where.parent) in str(caught.value)
    assert sqlite3.connect(foreign).execute("PRAGMA journal_mode").fetchone() == ("delete",), "left as it was"


def test_a_log_of_a_newer_release_is_refused(path: Path) -> None:
    with EmbeddedLog(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(BadUrl, match="format 99"):
        EmbeddedLog(path).open()


def test_a_file_that_may_only_be_read_is_access_refused(path: Path) -> None:
    with EmbeddedLog(path):
        pass
    read_only = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as caught:
        read_only.execute("DELETE FROM topic")
    read_only.close()
    assert isinstance(explain(caught.value, path), AccessRefused)


def test_a_full_disk_holds_events_back_and_loses_none(path: Path) -> None:
    log = EmbeddedLog(path)
    publisher = EmbeddedPublisher(log)
    publisher.open()
    there = Topic("t")
    assert isinstance(publisher.publish([message(there)])[0], Confirmed)
    (pages,) = log._file.query("PRAGMA page_count")[0]
    log._file.query(f"PRAGMA max_page_count = {pages + 2}")
    outcomes = publisher.publish(messages(there, 200))
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert "disk is full" in outcomes[0].reason
    assert log.topics() == {"t": 1}
    log._file.query("PRAGMA max_page_count = 1000000")
    assert all(isinstance(outcome, Confirmed) for outcome in publisher.publish(messages(there, 200)))
    publisher.close()


def test_a_file_that_another_process_keeps_locked_costs_the_deadline(path: Path) -> None:
    publisher = open_publisher(f"embedded://{path}", deadline=0.5)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    (outcome,) = publisher.publish([message(Topic("t"))])
    assert 0.3 < time.monotonic() - started < 3
    assert isinstance(outcome, Unavailable)
    assert "locked" in outcome.reason
    other.execute("ROLLBACK")
    other.close()
    assert isinstance(publisher.publish([message(Topic("t"))])[0], Confirmed)
    publisher.close()


def test_processes_that_create_the_file_together_all_succeed(path: Path) -> None:
    code = "import sys; from pillarbox.embedded import EmbeddedLog; EmbeddedLog(sys.argv[1], busy_timeout=30).open()"
    starters = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(6)]
    assert [starter.wait(60) for starter in starters] == [0] * 6
    assert os.path.exists(path)
