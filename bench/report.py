"""From rounds to figures: medians, the ratio, as JSON and as a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench import machine
from bench.drain import Rounds, Task
from bench.job import Figures

PARTS: tuple[str, ...] = ("take", "publish", "settle")


def summarise(task: Task, rounds: Rounds, versions: dict[str, str]) -> dict[str, Any]:
    """``ratio`` is the product's median rate over the raw loop's; 1.0 means that the product costs nothing."""
    sides: dict[str, Any] = {side: summarise_side(found) for side, found in rounds.items()}
    rates = {side: found["events_per_second"] for side, found in sides.items()}
    return {
        "bench": "drain",
        "ownership": task.ownership,
        "database": task.database,
        "broker": task.broker,
        "versions": versions,
        "events": task.events,
        "batch": task.batch,
        "payload_bytes": task.payload_bytes,
        "keys": task.keys,
        "one_at_a_time": task.one_at_a_time,
        "rounds": task.rounds,
        **sides,
        "ratio": round(rates["product"] / rates["raw"], 3) if len(rates) == 2 else None,
        "machine": machine.facts(),
    }


def summarise_side(figures: Sequence[Figures]) -> dict[str, Any]:
    """The median rate, every round's rate, and the medians of what one event costs, in microseconds."""

    def middle(part: str) -> float:
        costs: list[float] = [getattr(one, part) / one.events * 1e6 for one in figures]
        return round(median(costs), 1)

    return {
        "events_per_second": round(median(one.rate for one in figures)),
        "rates": [round(one.rate) for one in figures],
        "microseconds_per_event": {part: middle(part) for part in PARTS},
        "cpu_microseconds_per_event": middle("cpu"),
        "peak_rss_mib": max(one.rss_mib for one in figures),
        "database_work_per_event": figures[-1].work,
    }


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = (
        f"{summary['database']} -> {summary['broker']}, {summary['ownership']} lease, "
        f"{summary['events']:,} events, batch {summary['batch']}"
    )
    lines = [head, f"{'':8} {'events/s':>9}  {'  '.join(f'{part:>7}' for part in PARTS)}  {'cpu':>7}  us per event"]
    for side in ("product", "raw"):
        if side in summary:
            found = summary[side]
            costs = (*found["microseconds_per_event"].values(), found["cpu_microseconds_per_event"])
            lines.append(f"{side:8} {found['events_per_second']:>9,}  {'  '.join(f'{cost:>7.1f}' for cost in costs)}")
    return "\n".join([*lines, f"ratio {summary['ratio']:.2f}" if summary["ratio"] else "one side only"])
