"""A run of the lab in a folder: ``run.json``, and ``cells/W1-S1.json`` for each cell, written as it ends.

Each file is written beside its place and moved there, so that whoever reads meets a whole one, whatever ended the run.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from .json_values import IS, from_json, to_json
from .model import CellResult, Run, RunFacts

FORMAT: Final = 1
"""Of the files. A reader refuses a newer one; fields that are only added do not raise it."""

_RUN, _CELLS = "run.json", "cells"


def prepare(folder: Path) -> None:
    """Make ``folder`` ready for a run: it is made, or is empty, or holds an earlier run, whose cells are removed.

    Raises ConfigError (PB-001) for a folder with anything else in it, and for one that cannot be made.
    """
    check(folder)
    try:
        (folder / _CELLS).mkdir(parents=True, exist_ok=True)
        for old in (folder / _CELLS).glob("*.json"):
            old.unlink()
    except OSError as error:
        raise _unusable(folder, error) from error


def make(folder: Path) -> None:
    """Make ``folder`` where it is missing, before anything is run whose result is to go there. Raises ConfigError
    (PB-001)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error


def check(folder: Path) -> None:
    """Refuse what :func:`prepare` would refuse, and change nothing."""
    try:
        if not folder.exists() or not any(folder.iterdir()) or _is_ours(folder):
            return
    except OSError as error:
        raise _unusable(folder, error) from error
    raise ConfigError(
        f"--out {folder} is not empty, and what is in it is no run of the lab.",
        fix="Name a new folder, or one that an earlier `pillarbox lab run` made.",
    )


def _is_ours(folder: Path) -> bool:
    """By what the files say: other programs have a ``run.json``, too, and ``cells`` is about to be emptied."""
    run, trials = _content(folder / _RUN), _content(folder / "kafka.json")
    if run is not None:
        return isinstance(run, dict) and isinstance(run.get("facts"), dict) and run["facts"].get(IS) == "RunFacts"
    return isinstance(trials, list) and not (folder / _CELLS).exists()


def _content(file: Path) -> object:
    try:
        return json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def save_cell(folder: Path, cell: CellResult) -> None:
    """Write one cell's file; a run that is ended later keeps it."""
    place = folder / _CELLS
    place.mkdir(parents=True, exist_ok=True)
    file, text = place / f"{cell.key}.json", as_text({"format": FORMAT, "cell": to_json(cell)})
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        write_whole(file, text)


def save_run(folder: Path, run: Run) -> None:
    """Write ``run.json`` and every cell of ``run``; with none at the start, so that a killed run can be read."""
    folder.mkdir(parents=True, exist_ok=True)
    for cell in run.cells:
        save_cell(folder, cell)
    order = [str(cell.key) for cell in run.cells]
    about = {"format": FORMAT, "complete": run.complete, "facts": to_json(run.facts), "cells": order}
    write_whole(folder / _RUN, as_text(about))


def load_run(folder: Path) -> Run:
    """The run in ``folder``: cells in the order of ``run.json``, those that it does not name behind them.

    Raises ConfigError (PB-001) when there is none, or a file is not what this release wrote or can read.
    """
    about = _read(folder / _RUN)
    order = {name: at for at, name in enumerate(about.get("cells", ()))}
    files = sorted((folder / _CELLS).glob("*.json"), key=lambda one: (order.get(one.stem, len(order)), one.stem))
    try:
        return Run(
            from_json(RunFacts, about["facts"]),
            tuple(from_json(CellResult, _read(one)["cell"]) for one in files),
            complete=about["complete"] is True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder} holds no run that can be read: {error}.", fix=_FIX) from error


def as_text(data: object) -> str:
    """JSON for a file: indented, and other scripts readable where the text is whole."""
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair in an error's text: only as an escape is it JSON
        text = json.dumps(data, indent=1, allow_nan=False)
    return text + "\n"


def write_whole(place: Path, text: str) -> None:
    """Write ``text`` so that ``place`` holds the old or the new, never a part, also after SIGKILL."""
    handle, beside = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)  # mkstemp keeps it from others; a report is to be shown around
        os.replace(beside, place)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


_FIX: Final = "Name a folder that `pillarbox lab run` of this release made."


def _read(place: Path) -> dict[str, Any]:
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{place.parent} holds no run of the lab: there is no {place.name}.", fix=_FIX) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place} cannot be read: {error}.", fix=_FIX) from error
    if not isinstance(data, dict) or not isinstance(data.get("format"), int) or data["format"] > FORMAT:
        raise ConfigError(f"{place} was not written by this release's lab.", fix=_FIX)
    return data


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--out {folder} cannot be used: {error.strerror}.", fix="Name a folder that can be written.")
