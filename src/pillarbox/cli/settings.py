"""From a command's options to the checked settings, with logging set up on the way."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import typer

from ..config import Config, Loaded, load, of_outbox, only_outbox
from . import logs


def read(config_file: Path | None, flags: dict[str, object]) -> Loaded:
    """Merge file, environment and ``flags``, configure logging, and warn about names that have no effect."""
    loaded = load(flags, os.environ, file=config_file)
    logs.configure(loaded.config.log)
    for warning in loaded.warnings:
        logging.getLogger("pillarbox.config").warning(warning)
    return loaded


def settings(config_file: Path | None, **flags: object) -> Config:
    """The tree alone. ``flags`` are named like settings, with ``__`` for the dot: ``relay__batch=10``."""
    return read(config_file, {name.replace("__", "."): value for name, value in flags.items()}).config


def settings_of_one(
    config_file: Path | None, outbox: str | None, database: str | None, table_prefix: str | None, **flags: object
) -> Config:
    """The tree of a command that works on one outbox: the one that ``outbox`` names, or the only one there is.

    Raises ConfigError (PB-001) that lists them when that leaves a choice.
    """
    refuse_two_ways(outbox, database, table_prefix)
    found = settings(config_file, database=database, table_prefix=table_prefix, **flags)
    if database is not None:
        return found
    return only_outbox(found) if outbox is None else of_outbox(found, outbox)


def refuse_two_ways(outbox: str | None, database: str | None, table_prefix: str | None) -> None:
    """An outbox has its database and its prefix in the settings."""
    if outbox is not None and (database, table_prefix) != (None, None):
        raise typer.BadParameter("not together with --database or --table-prefix", param_hint="--outbox")
