"""The report of a run: HTML in English and Chinese, Markdown, JSON, a table for the terminal. Only ``write`` acts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..json_values import to_json
from ..model import Run
from ..results import as_text, load_run, write_whole
from .texts import LANGUAGES, texts

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["LANGUAGES", "terminal", "write"]

_FILES: Final = {"en": "report.html", "zh": "report.zh.html"}


def write(folder: Path, languages: Sequence[str] = LANGUAGES) -> tuple[Path, ...]:
    """Read the run in ``folder`` and write its reports beside it; the files, the first language's page first.

    Written anew from what was kept, as often as wanted. ConfigError (PB-001) where there is no run.
    """
    from ..kafka.showing import load_trials
    from .html import page
    from .markdown import document

    run, trials = load_run(folder), load_trials(folder)
    pages = {_FILES[language]: page(run, texts(language), trials) for language in languages}
    files = pages | {"report.md": document(run), "report.json": as_text(to_json(run))}
    for name, text in files.items():
        write_whole(folder / name, text)
    return tuple(folder / name for name in files)


def terminal(run: Run) -> RenderableType:
    """The matrices and what surprised, for a Rich console."""
    from .screen import overview

    return overview(run)
