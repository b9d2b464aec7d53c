"""The report's look and its few lines of script, which are put into each file: it needs nothing else."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from .markup import Markup


@cache
def style() -> Markup:
    """The style sheet for screen (light and dark, wide and narrow) and paper."""
    return _part("report.css")


@cache
def script() -> Markup:
    """Conveniences; nothing is missing without them."""
    return _part("report.js")


def _part(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))
