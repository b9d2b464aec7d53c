"""Kafka by itself: what was doubled and lost in the experiments whose ``kafka.json`` lies in the run's folder."""

from __future__ import annotations

from collections.abc import Sequence

from ..kafka.trial import Trial
from .evidence import table
from .markup import Child, Markup, cut, el
from .texts import Texts


def trials_section(texts: Texts, trials: Sequence[Trial]) -> Markup | None:
    """A table with a line for each experiment, and below it what belongs to each."""
    if not trials:
        return None
    heads = (texts.experiment, *texts.trial_counts, texts.expected)
    rows: list[Sequence[Child]] = [
        (el("span", el("b", one.id), " ", one.title, lang=_en(texts)), *_numbers(one), _as_expected(texts, one))
        for one in trials
    ]
    return el(
        "section",
        el("h2", texts.kafka, id="kafka"),
        el("p", texts.kafka_lead, class_="quiet"),
        table(texts.kafka, heads, rows, class_="numbers trials"),
        [_details(texts, one) for one in trials],
    )


def _numbers(one: Trial) -> tuple[str, ...]:
    counts = (len(one.events), one.acknowledged, one.records, one.doubled, one.gone)
    return tuple(f"{count:,}" if one.ran else "-" for count in counts)


def _as_expected(texts: Texts, one: Trial) -> Markup:
    if not one.ran:
        return el("span", texts.not_run, class_="quiet")
    if one.as_expected:
        return el("span", "✓ ", texts.comes_out["expected"], class_="yes")
    return el("strong", texts.unexpected, class_="tag no")


def _details(texts: Texts, one: Trial) -> Markup:
    settings = [(name, el("code", "null" if value is None else str(value))) for name, value in one.settings.items()]
    sync = [(at.moment, str(at.leader), el("code", str(list(at.in_sync)))) for at in one.sync]
    notes = [el("li", cut(note, 600)) for note in one.notes]
    return el(
        "details",
        el("summary", el("b", one.id), " ", one.title, lang=_en(texts)),
        el("p", one.why, lang=_en(texts)),
        el("p", one.fault, class_="quiet", lang=_en(texts)) if one.fault else None,
        el("p", el("b", texts.reason), " ", one.reason, lang=_en(texts)) if one.reason else None,
        table(texts.settings, (texts.setting, texts.value), settings, class_="kv") if settings else None,
        table(texts.in_sync, (texts.time, texts.leader, texts.in_sync), sync) if sync else None,
        el("ul", notes) if notes else None,
        class_="trial",
    )


def _en(texts: Texts) -> str | None:
    return None if texts.language == "en" else "en"
