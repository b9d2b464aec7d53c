"""``python -m bench figures``: tables and graphs of the documentation, from the recorded answers.

Replaces what stands between ``<!-- figures -->`` and ``<!-- end of figures -->`` in ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from bench.child import CHECKOUT
from bench.graph import Pair, bars
from bench.record import FIGURES, kept
from bench.runs import RUNS, Summary

PAGE = CHECKOUT / "docs" / "benchmarks.md"
HEADING = 2  # lines of a table
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
NAMES = {
    "postgres": "PostgreSQL",
    "mysql": "MySQL",
    "mysql57": "MySQL 5.7",
    "mariadb": "MariaDB",
    "mariadb102": "MariaDB 10.2",
    "sqlite": "SQLite",
    "kafka": "Kafka",
    "rabbitmq": "RabbitMQ",
    "embedded": "embedded log",
    "null": "no broker",
}
AT_REST = 0.15
"""Share of the cores that something else may use when a run begins; above it nothing that was timed is judged."""

Answers = Mapping[str, Summary]


def add_parser(commands: Any) -> None:
    """``python -m bench figures``."""
    parser: argparse.ArgumentParser = commands.add_parser("figures", help="write the recorded answers into the docs")
    parser.set_defaults(run=run, table=lambda summary: "\n".join(summary["written"]))


def run(_: argparse.Namespace) -> dict[str, Any]:
    """Write page and graphs; what was written."""
    answers = kept()
    graphs = {name: svg for name, svg in drawn(answers).items() if svg}
    for name, svg in graphs.items():
        (FIGURES / f"{name}.svg").write_text(svg)
    PAGE.write_text(replaced(PAGE.read_text(), page(answers, graphs)))
    return {"bench": "figures", "written": [str(PAGE.relative_to(CHECKOUT)), *(f"{name}.svg" for name in graphs)]}


def replaced(text: str, middle: str) -> str:
    """The page with new figures; ValueError if it has no place for them."""
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{middle}\n\n{END}{rest.split(END, 1)[1]}"


def drawn(answers: Answers) -> dict[str, str]:
    """The graphs by name; an empty text where nothing was recorded."""
    drains = [
        Pair(_pair(one), one["product"]["events_per_second"], one["raw"]["events_per_second"])
        for name, one in answers.items()
        if name.startswith("drain-")
    ]
    rows = [
        Pair(_pair(one), one["product"]["events_per_second"], one["raw"]["events_per_second"])
        for name, one in answers.items()
        if name.startswith("row-")
    ]
    lags = [
        Pair(f"{_pair(one)}, {one['rate']}/s, {share}", *(_lag(one, side, share) for side in ("product", "raw")))
        for name, one in answers.items()
        if name.startswith("latency-")
        for share in ("p50", "p99")
    ]
    sides = ("Pillarbox", "raw loop")
    return {
        "drain": bars("A backlog, partition lease", sides, drains, "/s") if drains else "",
        "row": bars("A backlog, row lease", sides, rows, "/s") if rows else "",
        "latency": bars("From commit to consumer", sides, lags, "ms") if lags else "",
    }


def page(answers: Answers, graphs: Mapping[str, str]) -> str:
    """What stands between the marks."""
    pictures = [f"![{name}](figures/{name}.svg)" for name in graphs]
    tables = [list(make(answers)) for make in (_limits, _drains, _debezium, _latencies, _writes)]
    limits, *rest = ["\n".join(lines) if len(lines) > HEADING else "" for lines in tables]
    return "\n\n".join(part for part in (_machine(answers), limits, *pictures, *rest) if part)


def _machine(answers: Answers) -> str:
    if not answers:
        return "Nothing was recorded yet."
    facts = next(iter(answers.values()))["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    days = sorted({one["machine"]["at"][:10] for one in answers.values()})
    return (
        f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} on {facts['cores']} cores of {facts['processor']},"
        f" {facts['memory_gib']} GiB, Linux {facts['kernel']}, Python {facts['python']}, {packages}. Database, broker,"
        " product and raw loop share these cores."
    )


def _limits(answers: Answers) -> Iterator[str]:
    yield "| run | what | asked | measured | | busy before |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in RUNS:
        for bar in one.bars if one.name in answers else ():
            summary = answers[one.name]
            found, used = bar.measured(summary), busy_before(summary)
            sign, verdict = "≥" if bar.at_least else "≤", "met" if bar.holds(summary) else "**missed**"
            if used > AT_REST and not bar.counted:
                verdict = "no verdict, busy"
            yield f"| {one.name} | {bar.what} | {sign} {bar.limit:g} | {found:g} | {verdict} | {used:.0%} |"


def busy_before(summary: Summary) -> float:
    """Share of the cores that was used when the run began; of older answers their load, by core."""
    facts = summary["machine"]
    used: float | None = facts.get("busy_before")
    return min(facts["load_average_before"][0] / facts["cores"], 1.0) if used is None else used


def _drains(answers: Answers) -> Iterator[str]:
    yield "| a backlog, µs per event | product, events/s | raw | ratio | product: take, publish, settle, cpu | raw |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in answers.values():
        if one["bench"] == "drain":
            product, raw = one["product"], one["raw"]
            yield (
                f"| {_pair(one)}, {one['ownership']} lease{_keys(one)} | {product['events_per_second']:,} |"
                f" {raw['events_per_second']:,} | {one['ratio']:.2f} | {_costs(product)} | {_costs(raw)} |"
            )


def _debezium(answers: Answers) -> Iterator[str]:
    yield "| a backlog, records/s at the topic | Debezium as it comes | tuned | relay | relay : Debezium | tuned |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in answers.values():
        if one["bench"] == "debezium":
            rates, ratio = one["events_per_second"], one["ratio"]
            speeds = " | ".join(f"{rates[side]:,}" for side in ("default", "tuned", "relay"))
            yield f"| {_pair(one)} | {speeds} | {ratio['default']:.2f} | {ratio['tuned']:.2f} |"


def _latencies(answers: Answers) -> Iterator[str]:
    yield "| commit to consumer, ms | rate | product p50, p99 | raw p50, p99 |"
    yield "| --- | --- | --- | --- |"
    for one in answers.values():
        if one["bench"] == "latency":
            lags = [f"{_lag(one, side, 'p50'):.1f}, {_lag(one, side, 'p99'):.1f}" for side in ("product", "raw")]
            yield f"| {_pair(one)} | {one['rate']}/s | {lags[0]} | {lags[1]} |"


def _writes(answers: Answers) -> Iterator[str]:
    yield "| a transaction, p50 in µs | without | with | ratio |"
    yield "| --- | --- | --- | --- |"
    for one in answers.values():
        if one["bench"] in ("add", "write"):
            names = ("raw", "add") if one["bench"] == "add" else ("without", "with")
            before, after = (one["p50_microseconds"][name] for name in names)
            what = "two raw inserts, or `add`" if one["bench"] == "add" else "five statements"
            yield f"| {NAMES[one['database']]}, {what} | {before:,} | {after:,} | {one['ratio']:.2f} |"


def _pair(one: Summary) -> str:
    return f"{NAMES[one['database']]} → {NAMES[one['broker']]}"


def _keys(one: Summary) -> str:
    return ", one key" if one.get("keys") == 1 else ""


def _lag(one: Summary, side: str, share: str) -> float:
    return float(one["milliseconds"][side]["consumer"][share])


def _costs(side: Summary) -> str:
    costs = (*side["microseconds_per_event"].values(), side["cpu_microseconds_per_event"])
    return ", ".join(f"{cost:.0f}" for cost in costs)
