"""The report in English."""

from __future__ import annotations

from typing import Final

from ...model import Lane, Outcome
from . import Named, Texts

_PLURALS: Final = {
    Outcome.GHOST: ("ghost", "ghosts"),
    Outcome.LOSS: ("loss", "losses"),
    Outcome.DUPLICATE: ("duplicate", "duplicates"),
    Outcome.TWICE: ("applied twice", "applied twice"),
    Outcome.SKIPPED: ("not applied", "not applied"),
}


def _counted(outcome: Outcome, number: int) -> str:
    if outcome is Outcome.NOTHING:
        return "nothing left behind"
    return f"{number:,} {_PLURALS[outcome][number != 1]}"


def _plural(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 100 else f"{int(value // 60)} min {int(value % 60)} s"


def _timeline_of(event_id: str, others: int) -> str:
    rest = f"; the other {_plural(others, 'event is', 'events are')} in report.json" if others else ""
    return f"Event {event_id}, one of those that came out worst{rest}."


TEXTS: Final = Texts(
    language="en",
    other=("中文", "report.zh.html"),
    title="Fault lab report",
    kicker="Pillarbox fault lab",
    headline="Where a database and a broker disagree",
    lead=lambda cells, events, seed: (
        f"{_plural(cells, 'cell was', 'cells were')} run with {_plural(events, 'event', 'events')} each (seed {seed}): "
        "real processes, a real fault at one exact step, and then a look at what the servers hold."
    ),
    started="Started",
    lasted="Cells took",
    seconds=_seconds,
    incomplete="This run was ended early. What was done by then is here; cells that are missing were not reached.",
    all_expected=lambda cells: (
        f"Reality matched what is expected, in {'the one cell' if cells == 1 else f'all {cells:,} cells'} that ran."
    ),
    nothing_ran="No cell was run.",
    surprised=lambda cells: f"Reality differs from what is expected in {_plural(cells, 'cell', 'cells')}",
    surprised_lead="What the servers hold is the truth; the expectation was wrong, or something is broken.",
    seen_unexpected=lambda number, all_, what: f"not expected, and seen: {what} ({number} of {all_} events)",
    not_seen=lambda what: f"expected, and not seen: {what}",
    troubled=lambda cells: f"{_plural(cells, 'cell', 'cells')} could not be run to the end",
    troubled_lead="Nothing is said about these: a cell that was not finished is not judged.",
    sending="Sending",
    sending_lead="Each row is a place where a fault strikes, each column a way of telling a broker of a committed row.",
    consuming="Consuming",
    consuming_lead="The same on the other side: each column is a way of recognising an event that comes a second time.",
    window="Window",
    not_part="not in this run",
    not_run="expected, not run",
    impossible="no such window",
    trouble="not finished",
    expected="expected",
    nothing_expected="nothing left behind",
    unexpected="unexpected",
    of_events=lambda events: f"of {_plural(events, 'event', 'events')}",
    how_to_read="How to read this",
    how_paragraphs=(
        "A window is the gap between two steps that belong together but are two: between the database's commit and "
        "the send, between the broker's confirmation and the note that it came. In each cell every event goes through "
        "that gap while a process is killed, a connection is cut or a commit fails, exactly there.",
        "Afterwards the processes are started again and may finish what they can. Only when everything has come to "
        "rest are database and broker asked for what they hold, by event id. The counts come from those rows and "
        "records, never from what the programs said of themselves.",
        "A fact that a server does not show is called “not visible”, with the reason. A cell that was not run is "
        "marked so; what stands in it is only what is expected.",
    ),
    outcomes={
        Outcome.GHOST: "ghost",
        Outcome.LOSS: "loss",
        Outcome.DUPLICATE: "duplicate",
        Outcome.TWICE: "applied twice",
        Outcome.SKIPPED: "not applied",
        Outcome.NOTHING: "nothing left behind",
    },
    outcome_sentences={
        Outcome.GHOST: "A message about a row that does not exist: the transaction rolled back, the message did not.",
        Outcome.LOSS: "The row is committed, and nothing is left that would ever send its message.",
        Outcome.DUPLICATE: "One event, several messages. Harmless only to a consumer that recognises the id.",
        Outcome.TWICE: "A consumer did its work for one event more than once.",
        Outcome.SKIPPED: "The message is there, and the consumer will never do its work for it.",
        Outcome.NOTHING: "Row, message and effect are there once each, or not at all.",
    },
    counted=_counted,
    windows={
        "W1": Named(
            "Confirmed, then rolled back", "The broker has confirmed the message; then the database transaction fails."
        ),
        "W2": Named("Committed, then dead", "The database has committed; the process dies before it sends."),
        "W3": Named(
            "Stored, and nobody knows", "The broker has stored the message; its answer never reaches the sender."
        ),
        "W3r": Named(
            "Confirmed, not noted", "The relay has the broker's confirmation and dies before it writes that down."
        ),
        "W4": Named(
            "Applied, not acknowledged", "The consumer has committed its work and dies before the broker is told."
        ),
        "W4r": Named("Two deliveries at once", "One event is handled by two workers at the same moment."),
        "B1": Named("Inserted, not committed", "The process dies after the INSERT returned and before COMMIT."),
        "B2": Named("Commit without an answer", "COMMIT reached the database; its answer was lost on the way back."),
        "B3": Named(
            "Lease lost while sending", "A relay stands still while it sends, and another one takes over its work."
        ),
        "B4": Named("Second commit fails", "The database has committed; the broker's own transaction then fails to."),
    },
    strategies={
        "S1": Named("Send inside the transaction", "The message is sent and confirmed before the transaction commits."),
        "S2": Named("Send after commit", "Commit first, then send; an error is logged."),
        "S3": Named(
            "After-commit hook, retried",
            "A hook after the commit sends, and tries again for as long as the process lives.",
        ),
        "S4": Named(
            "Database first, Kafka transaction", "A Kafka transaction is committed right behind the database's."
        ),
        "S5-row": Named("Outbox, row lease", "The event is a row of the same transaction; relays lease single rows."),
        "S5-partition": Named(
            "Outbox, partition lease", "The event is a row of the same transaction; relays own partitions, in order."
        ),
        "S6": Named(
            "Outbox, change data capture", "The event is a row of the same transaction, read from the database's log."
        ),
        "C0": Named("No idempotence", "Whatever is delivered is applied."),
        "C1": Named("Look first", "SELECT whether the event was applied, apply it, then insert the mark."),
        "C2": Named("Inbox", "A mark with a unique key, in the same transaction as the work."),
        "CA": Named("Acknowledge first", "The broker is told before the work is done, as auto-commit does."),
    },
    said=lambda english: english,
    cells="Cell by cell",
    open_all="Open all",
    close_all="Close all",
    back="Back to the matrix",
    why="Why",
    reason="Not run because",
    may_show="May show as well, by timing",
    outcome="Outcome",
    events="Events",
    seen="Seen",
    comes_out={
        "expected": "as expected",
        "possible": "possible",
        "unexpected": "not expected",
        "missing": "expected, not seen",
    },
    both="Two questions, two answers",
    both_caption="Events by what the database and the broker hold",
    database="Database",
    broker="Broker",
    has_row="has the row",
    no_row="has no row",
    has_message="has the message",
    no_message="has no message",
    not_visible="not visible",
    applied_caption="How often each consumer applied an event",
    consumer="Consumer",
    times=lambda number: "never" if number == 0 else "once" if number == 1 else f"{number} times",
    timeline="What happened, step by step",
    timeline_of=_timeline_of,
    no_timeline="No moment of this event was recorded.",
    clocks="All times are on the lab's clock and count from this event's first step.",
    clock_of=lambda server, offset: (
        f"The clock of {server} was {offset} beside it; its timestamps are shifted by that."
    ),
    clock_unknown=lambda server, why: f"The clock of {server} could not be compared ({why}).",
    sources={"lab": "seen by the lab", "database": "database timestamp", "broker": "broker timestamp"},
    legend_fault="the fault",
    legend_end="the end of a process",
    legend_path="thin line: order in time, not cause",
    time="Time",
    lane="Where",
    lanes={
        Lane.APPLICATION: "application",
        Lane.DATABASE: "database",
        Lane.RELAY: "relay",
        Lane.BROKER: "broker",
        Lane.CONSUMER: "consumer",
    },
    what="What",
    source="Known from",
    as_text="The same as a table",
    fault="fault",
    end="end",
    left_out=lambda number: f"{number:,} more left out here; report.json has them all.",
    evidence="Evidence",
    settings="Settings",
    setting="Setting",
    value="Value",
    before_after="Servers before and after",
    before="Before",
    after="After",
    exits="How the processes ended",
    role="Process",
    ended="Ended with",
    rows="What the servers hold",
    one_event=lambda event_id: f"Event {event_id}",
    business_row="Business row",
    outbox_row="Outbox row",
    history="Its history",
    records="Messages in the broker",
    marks="Inbox marks",
    effects="Effects",
    table="Table",
    columns="Columns",
    server_time="Server's time",
    place="Place",
    headers="Headers",
    none="none",
    verdicts="Every event of this cell",
    event="Event",
    again="Run this cell again",
    nothing_to_show="Nothing was recorded.",
    kafka="Kafka by itself",
    kafka_lead=(
        "What its idempotent producer recognises, and what its acknowledgements are worth when brokers stop. Doubled: "
        "events with more than one record. Gone: acknowledged, and in no record."
    ),
    kafka_surprised=lambda number: (
        f"Kafka by itself did not do what is expected in {_plural(number, 'experiment', 'experiments')}"
    ),
    experiment="Experiment",
    trial_counts=("sent", "acknowledged", "records", "doubled", "gone"),
    leader="Leader",
    in_sync="In-sync replicas",
    ran_on="What it ran on",
    versions="Versions",
    servers="Servers",
    command="Command",
    colophon="Written by pillarbox lab. The same facts are in report.json, whole, for programs.",
)
