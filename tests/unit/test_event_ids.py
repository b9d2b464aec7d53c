"""Event ids are UUIDs of version 7, and later ones are greater, whatever clock, threads or forks do."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pillarbox.event import ids
from pillarbox.event.ids import EventIds


def test_ids_are_version_7_of_the_rfc_variant_and_carry_the_time() -> None:
    before = time.time_ns() // 1_000_000
    made = EventIds().new()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= after


def test_ids_of_a_process_grow_also_within_a_millisecond() -> None:
    source = EventIds()
    made = [source.new() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_grow_when_the_clock_goes_back_and_when_the_counter_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EventIds()
    first = source.new()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000)
    second = source.new()
    source._counter = (1 << 74) - 1
    third = source.new()
    assert first < second < third
    assert third.int >> 80 == (second.int >> 80) + 1


def test_threads_never_get_the_same_id() -> None:
    source = EventIds()
    with ThreadPoolExecutor(4) as pool:
        made = [one for part in pool.map(lambda _: [source.new() for _ in range(2_000)], range(4)) for one in part]
    assert len(set(made)) == 8_000


def test_a_forked_child_does_not_count_on_where_its_parent_stands() -> None:
    source = EventIds()
    source.new()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, source.new().bytes)
        os._exit(0)
    os.wait()
    child = os.read(reader, 16)
    assert child != source.new().bytes
    assert child[7:] != source.new().bytes[7:]
    os.close(reader)
    os.close(writer)
