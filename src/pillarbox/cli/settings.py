"""From a command's options to the checked settings, with logging set up on the way."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ..config import Config, Loaded, load
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
