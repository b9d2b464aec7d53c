"""The report says what the run found, in both languages, and nothing of a server's text becomes part of the page."""

# ruff: noqa: RUF001 - full-width punctuation is what Chinese is written with

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from pillarbox.lab import consumers, report, results, strategies, windows
from pillarbox.lab.kafka.showing import save_trials
from pillarbox.lab.kafka.trial import Told, Trial
from pillarbox.lab.model import (
    CellKey,
    CellResult,
    EventId,
    Impossible,
    Kill,
    Lane,
    Moment,
    NotRun,
    Outcome,
    Planned,
    Run,
    Verdict,
)
from pillarbox.lab.points import MEANINGS
from pillarbox.lab.report import reading
from pillarbox.lab.report.html import page
from pillarbox.lab.report.markdown import document
from pillarbox.lab.report.texts import LANGUAGES, texts
from pillarbox.lab.report.texts.zh_said import SAID
from pillarbox.lab.report.timeline import picture

from .lab_samples import HOSTILE, RUN_FACTS, event, ghosts, losses, sample_run, surprise, unseen

EMPTY = {"meta", "br", "col"}


class Checked(HTMLParser):
    """Reads a page: elements are closed in order; attributes and visible text are kept."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


@cache
def written(language: str, surprises: bool = True) -> str:
    return page(sample_run(surprises=surprises), texts(language))


@pytest.fixture(params=LANGUAGES)
def html(request: pytest.FixtureRequest) -> str:
    return written(request.param)


# The page ---------------------------------------------------------------------------------------------------------


def test_a_page_is_well_formed_and_needs_nothing_from_elsewhere(html: str) -> None:
    checked = Checked(html)
    loaded = {"src", "srcset", "data", "action", "poster", "background", "formaction"}
    for tag, attributes in checked.elements:
        assert not loaded & set(attributes), (tag, attributes)
        assert tag not in {"link", "iframe", "object", "embed", "img", "base", "form"}
        assert not any(name.startswith("on") for name in attributes)
        if "href" in attributes:
            assert re.fullmatch(r"#[\w-]+|report(\.zh)?\.html", attributes["href"] or ""), attributes
    assert "url(" not in html
    assert "@import" not in html
    assert sum(tag == "script" for tag, _ in checked.elements) == 1


def test_ids_are_unique_and_links_lead_to_them(html: str) -> None:
    elements = Checked(html).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"] for _, a in elements if (a.get("href") or "").startswith("#")} <= {f"#{one}" for one in ids}


def test_what_servers_and_ids_say_stays_text(html: str) -> None:
    assert "<script>alert" not in html
    assert "<img" not in html
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    html.encode("utf-8")
    assert "</td><script>alert(1)</script>&\\u202e\\x07\\ud800" in Checked(html).text
    assert HOSTILE not in html


def test_long_values_and_many_events_are_cut_and_it_is_said_how_many() -> None:
    many = tuple(Verdict(event(n), True, False, frozenset({Outcome.LOSS})) for n in range(1000))
    facts = tuple(replace(losses().facts[0], event_id=event(n)) for n in range(1000))
    moments = tuple(Moment(float(n), Lane.RELAY, "sent again " * 200, event(0)) for n in range(5000))
    cell = replace(losses(hostile=True), verdicts=many, facts=facts, timeline=moments)
    text = page(Run(RUN_FACTS, (cell,)), texts("en"))
    assert len(text) < 250_000
    said = Checked(text).text
    assert "960 more left out here; report.json has them all." in said
    assert "4,940 more left out here" in said
    assert "… (+" in said


def test_a_surprise_stands_before_everything_else_and_in_its_cell() -> None:
    said = Checked(written("en")).text
    assert said.index("Reality differs from what is expected in 1 cell") < said.index("Each row is a place")
    assert said.count("not expected, and seen: loss (1 of 20 events)") == 2
    calm = Checked(written("en", surprises=False)).text
    assert "Reality matched what is expected, in all" in calm
    assert "Reality differs" not in calm


def test_what_was_expected_and_not_seen_is_a_surprise_too() -> None:
    nothing = tuple(replace(one, outcomes=frozenset({Outcome.NOTHING})) for one in ghosts().verdicts)
    cell = replace(ghosts(), verdicts=nothing)
    assert "expected, and not seen: ghost" in Checked(page(Run(RUN_FACTS, (cell,)), texts("en"))).text


def test_an_interrupted_run_says_so_and_so_does_a_cell_that_was_not_finished() -> None:
    said = Checked(written("en")).text
    assert "This run was ended early." in said
    assert "1 cell could not be run to the end" in said
    assert "[PB-005] kafka://k1:9092 does not answer." in said


def test_cells_that_were_not_run_and_impossible_ones_are_labelled_with_their_reason() -> None:
    said = Checked(written("en")).text
    assert "expected, not run: duplicate" in said
    assert "Not run because Pillarbox does not read the database's log yet." in said
    assert "no such window" in said
    assert "There is no relay: whoever commits also sends." in said


def test_what_was_not_visible_says_why_and_is_counted_as_that() -> None:
    said = Checked(page(Run(RUN_FACTS, (unseen(),)), texts("en"))).text
    assert "not visible (the queue was read and holds nothing any more)" in said
    assert "✓ has the row 0 0 20" in said


def test_each_cell_has_its_sentence_its_counts_its_picture_its_evidence_and_its_command() -> None:
    text = page(Run(RUN_FACTS, (ghosts(),)), texts("en"))
    said = Checked(text).text
    for part in (
        "The broker has the message and cannot take it back; the row is rolled back.",
        "✗ has no row 20 0",
        "RuntimeError raised at s1.acknowledged",
        "READ COMMITTED",
        "pillarbox_lab_7c1a_w1[0]@0",
        "signal 15",
        "pillarbox lab run --window W1 --strategy S1",
        "The clock of kafka was -3.1 ms beside it",
        "The clock of rabbitmq could not be compared (AMQP has no way to ask for the time).",
    ):
        assert part in said
    assert "<svg" in text


def test_a_run_without_cells_can_be_shown() -> None:
    for language in LANGUAGES:
        Checked(page(Run(RUN_FACTS, (), complete=False), texts(language)))
    assert "ended early" in document(Run(RUN_FACTS, (), complete=False))


def test_experiments_with_kafka_alone_stand_beside_the_matrix_and_their_surprises_at_the_top(tmp_path: Path) -> None:
    told = tuple(Told(f"e{n}", True, n, ()) for n in range(20))
    settings = {"acks": "<b>1</b>", "transactional.id": None}
    gone = Trial(
        "K5", "acks=1, the leader dies", "killed", "The leader alone had it.", "none", "none", "all", settings, told
    )
    left_out = replace(gone, id="K6", events=(), reason="it needs a cluster of its own")
    results.save_run(tmp_path, Run(RUN_FACTS, (ghosts(),)))
    save_trials(tmp_path, (gone, left_out))
    for file in report.write(tmp_path)[:2]:
        checked = Checked(file.read_text(encoding="utf-8"))
        assert "K5 acks=1, the leader dies 20 20 0 0 20" in checked.text
        assert "<b>1</b>" in checked.text
        assert "it needs a cluster of its own" in checked.text
    said = Checked((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert said.index("Kafka by itself did not do what is expected in 1 experiment") < said.index("Each row is a place")
    assert "Reality matched" not in said


# The picture ------------------------------------------------------------------------------------------------------


def test_the_picture_has_the_lanes_in_order_the_fault_and_the_long_pauses() -> None:
    moments = reading.moments_of(cell := _cell("W3r", "S5-row"), cell.verdicts[0].event_id)
    drawn = Checked(picture(texts("en"), moments, name="p"))
    assert drawn.text.startswith(
        f"What happened, step by step: {moments[0].event_id} application database relay broker consumer"
    )
    assert "… 6.12 s …" in drawn.text
    assert sum(a.get("class") == "cross" for _, a in drawn.elements) == 1


def test_moments_of_other_events_stay_out_of_a_picture() -> None:
    cell = ghosts()
    assert {one.event_id for one in reading.moments_of(cell, event(3))} == {event(3)}


def test_the_event_that_is_shown_is_one_of_the_worst() -> None:
    assert reading.chosen(surprise(), 1)[0].outcomes == {Outcome.LOSS}
    assert len(reading.chosen(surprise(), 3)) == 2


# Other forms ------------------------------------------------------------------------------------------------------


def test_the_markdown_has_the_matrix_and_nothing_of_a_servers_text_is_markup() -> None:
    text = document(sample_run())
    assert "| W1 Confirmed, then rolled back | 20 ghosts |" in text
    assert "**unexpected**: 1 loss" in text
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)
    assert not re.search(r"(?<!\\)<", outside)
    text.encode("utf-8")


def test_the_terminal_has_the_matrix_and_a_line_for_each_surprise() -> None:
    console = Console(width=160, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(report.terminal(sample_run()))
    console.print(report.terminal(sample_run()))  # and again
    said = console.export_text()
    assert "20 ghosts" in said
    assert "unexpected: W2-S5-row: not expected, and seen: loss (1 of 20 events)" in said
    assert "not finished: W4-C1" in said


def test_the_reports_of_a_folder_are_written_as_often_as_wanted(tmp_path: Path) -> None:
    results.save_run(tmp_path, sample_run())
    first = {one.name: one.read_text() for one in report.write(tmp_path)}
    assert set(first) == {"report.html", "report.zh.html", "report.md", "report.json"}
    assert {one.name: one.read_text() for one in report.write(tmp_path)} == first


# Words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_window_strategy_and_way_has_its_words(language: str) -> None:
    words = texts(language)
    assert set(words.windows) == {one.id for one in windows.WINDOWS}
    assert set(words.strategies) == {one.id for one in (*strategies.STRATEGIES, *consumers.WAYS)}
    assert set(words.outcomes) == set(words.outcome_sentences) == set(Outcome)
    assert set(words.lanes) == set(Lane)


def test_the_orders_and_sides_of_the_report_are_those_of_the_lab() -> None:
    assert tuple(one.id for one in (*strategies.STRATEGIES, *consumers.WAYS)) == reading.STRATEGY_ORDER
    assert {one.id for one in consumers.WAYS} == reading.CONSUMING


def sentences() -> Iterator[str]:
    """Everything that plans say on any servers, and timelines of the named points."""
    for window in windows.WINDOWS:
        for column in strategies.STRATEGIES if window.side == "sending" else consumers.WAYS:
            for database in ("sqlite", "postgresql", "mysql", "mariadb"):
                for broker in ("embedded", "kafka", "rabbitmq"):
                    plan = column.plan(window.id, database, broker)
                    yield plan.why
                    if isinstance(plan, NotRun):
                        yield plan.reason
    yield from (meaning.words for meaning in MEANINGS.values())


def test_what_the_lab_says_of_its_plans_and_steps_is_said_in_chinese_too() -> None:
    said = texts("zh").said
    assert {one for one in sentences() if said(one) is None} == set()
    assert {one for one in SAID if one not in set(sentences())} == set()


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("SIGKILL (relay 123)", "SIGKILL（中继 123）"),
        ("SIGSTOP, for longer than its lease of 3 s (relay 5)", "SIGSTOP，停得比它 3 秒的租约更久（中继 5）"),
        ("consumer 7 ends: signal 9", "消费者 7 结束：signal 9"),
        (
            "The database has the row; the broker holds one record (log#1); C0 applied it 3 times: applied twice.",
            "数据库里有这一行；代理里有一条消息（log#1）；C0 执行了 3 次：重复生效。",
        ),
        ("something that nobody has foreseen (relay 123)", None),
    ],
)
def test_sentences_with_names_and_numbers_are_said_in_chinese_too(english: str, chinese: str | None) -> None:
    assert texts("zh").said(english) == chinese


def test_the_chinese_page_is_chinese_and_marks_what_is_not() -> None:
    checked = Checked(written("zh"))
    assert checked.elements[0] == ("html", {"lang": "zh-Hans"})
    assert "幽灵消息 20 条" in checked.text
    assert ("p", {"class": "why", "lang": "en"}) in checked.elements  # a sentence that nobody has translated


def _cell(window: str, strategy: str) -> CellResult:
    return next(one for one in sample_run().cells if one.key == CellKey(window, strategy))


def test_a_window_and_a_strategy_of_a_later_release_are_shown_by_their_ids() -> None:
    later = replace(ghosts(), key=CellKey("W9", "S9"))
    none = CellResult(CellKey("W9", "S1"), Impossible("Not here."))
    plan = Planned(Kill("x"), frozenset({Outcome.NOTHING}), "why")
    empty = CellResult(CellKey("W9", "S2"), plan, verdicts=(Verdict(EventId("e"), True, True, frozenset()),))
    said = Checked(page(Run(RUN_FACTS, (later, none, empty)), texts("en"))).text
    assert "W9" in said
    assert "S9" in said
