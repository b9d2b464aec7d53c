"""What came out, for people (a table on the terminal) and for programs (``kafka.json`` in the run's folder)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .trial import Sync, Told, Trial

if TYPE_CHECKING:
    from rich.table import Table

FILE: Final = "kafka.json"


def as_json(trial: Trial) -> dict[str, Any]:
    """Everything about one trial, its counts and its judgement included."""
    counts = {name: getattr(trial, name) for name in ("acknowledged", "records", "doubled", "gone", "as_expected")}
    return asdict(trial) | counts | {"sentence": trial.sentence}


def save_trials(folder: Path, trials: Sequence[Trial]) -> Path:
    """Write ``kafka.json`` into ``folder``, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.write_text(json.dumps([as_json(one) for one in trials], indent=1) + "\n", encoding="utf-8")
    return path


def load_trials(folder: Path) -> tuple[Trial, ...]:
    """What :func:`save_trials` wrote; empty when the folder has none."""
    path = folder / FILE
    if not path.exists():
        return ()
    return tuple(map(_trial, json.loads(path.read_text(encoding="utf-8"))))


def table(trials: Sequence[Trial]) -> Table:
    """One line each: what was done, what came out, and whether that was expected."""
    from rich.table import Table

    shown = Table("", "experiment", "sent", "acknowledged", "records", "doubled", "gone", "expected", box=None)
    for one in trials:
        counts = (len(one.events), one.acknowledged, one.records, one.doubled, one.gone)
        numbers = [f"{count:,}" for count in counts] if one.ran else ["-"] * len(counts)
        expected = {True: "yes", False: "NO", None: "not run"}[one.as_expected]
        shown.add_row(one.id, f"{one.title}\n{_below(one)}", *numbers, expected)
    return shown


def _below(one: Trial) -> str:
    if not one.ran:
        return f"  expected: {one.why} Not run: {one.reason}"
    sync = "; ".join(f"{at.moment} {list(at.in_sync)}" for at in one.sync)
    return "\n".join(f"  {line}" for line in (one.why, f"in sync: {sync}", *one.notes))


def _trial(found: dict[str, Any]) -> Trial:
    fields = {name: found[name] for name in Trial.__dataclass_fields__ if name in found}
    fields["events"] = tuple(Told(**one | {"places": tuple(one["places"])}) for one in found["events"])
    fields["sync"] = tuple(Sync(**one | {"in_sync": tuple(one["in_sync"])}) for one in found["sync"])
    fields["notes"] = tuple(found["notes"])
    return Trial(**fields)
