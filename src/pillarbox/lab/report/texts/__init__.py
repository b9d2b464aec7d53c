"""What the report says, by language. A language is one file that fills in every field of :class:`Texts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ....errors import ConfigError
from ...model import Lane, Outcome


@dataclass(frozen=True, slots=True)
class Named:
    """A window, strategy or way of consuming: a few words, and one sentence for who has never heard of it."""

    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Texts:
    """Every word of a report in one language. Functions take numbers and names and give a whole phrase.

    ``said`` translates the lab's own English sentences (of plans, timelines, verdicts); what it gives None for is shown
    in English, and marked so.
    """

    language: str  # as in <html lang>
    other: tuple[str, str]  # the other language's name in itself, and its file
    title: str
    kicker: str
    headline: str
    lead: Callable[[int, int, int], str]  # cells, events each, seed
    started: str
    lasted: str
    seconds: Callable[[float], str]
    incomplete: str
    all_expected: Callable[[int], str]
    nothing_ran: str
    surprised: Callable[[int], str]
    surprised_lead: str
    seen_unexpected: Callable[[int, int, str], str]  # of so many events, what
    not_seen: Callable[[str], str]
    troubled: Callable[[int], str]
    troubled_lead: str

    sending: str
    sending_lead: str
    consuming: str
    consuming_lead: str
    window: str
    not_part: str
    not_run: str
    impossible: str
    trouble: str
    expected: str
    nothing_expected: str
    unexpected: str
    of_events: Callable[[int], str]

    how_to_read: str
    how_paragraphs: tuple[str, ...]
    outcomes: Mapping[Outcome, str]
    outcome_sentences: Mapping[Outcome, str]
    counted: Callable[[Outcome, int], str]
    windows: Mapping[str, Named]
    strategies: Mapping[str, Named]
    said: Callable[[str], str | None]

    cells: str
    open_all: str
    close_all: str
    back: str
    why: str
    reason: str
    may_show: str
    outcome: str
    events: str
    seen: str
    comes_out: Mapping[str, str]  # as expected, allowed, unexpected, missing
    both: str
    both_caption: str
    database: str
    broker: str
    has_row: str
    no_row: str
    has_message: str
    no_message: str
    not_visible: str
    applied_caption: str
    consumer: str
    times: Callable[[int], str]

    timeline: str
    timeline_of: Callable[[str, int], str]  # event id, how many others
    no_timeline: str
    clocks: str
    clock_of: Callable[[str, str], str]  # server, offset
    clock_unknown: Callable[[str, str], str]  # server, why
    sources: Mapping[str, str]
    legend_fault: str
    legend_end: str
    legend_path: str
    time: str
    lane: str
    lanes: Mapping[Lane, str]
    what: str
    source: str
    as_text: str
    fault: str
    end: str
    left_out: Callable[[int], str]

    evidence: str
    settings: str
    setting: str
    value: str
    before_after: str
    before: str
    after: str
    exits: str
    role: str
    ended: str
    rows: str
    one_event: Callable[[str], str]
    business_row: str
    outbox_row: str
    history: str
    records: str
    marks: str
    effects: str
    table: str
    columns: str
    server_time: str
    place: str
    headers: str
    none: str
    verdicts: str
    event: str
    again: str
    nothing_to_show: str

    kafka: str
    kafka_lead: str
    kafka_surprised: Callable[[int], str]
    experiment: str
    trial_counts: tuple[str, ...]  # sent, acknowledged, records, doubled, gone
    leader: str
    in_sync: str

    ran_on: str
    versions: str
    servers: str
    command: str
    colophon: str


LANGUAGES: Final = ("en", "zh")


def texts(language: str) -> Texts:
    """The texts of a language: ``en`` or ``zh``; ConfigError (PB-001) for another one.

    >>> texts("en").language
    'en'
    """
    if language == "en":
        from .en import TEXTS
    elif language == "zh":
        from .zh import TEXTS
    else:
        raise ConfigError(f"The report has no language {language!r}.", fix=f"Choose of {', '.join(LANGUAGES)}.")
    return TEXTS
