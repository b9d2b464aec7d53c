"""File < environment < flags, merged into one checked tree that knows where each value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import ConfigError
from ..masking import mask_url, mask_whole_url
from .models import Config
from .names import FLAGS, variable
from .sources import find_file, flat, read_environment, read_file, unknown_names


@dataclass(frozen=True, slots=True)
class Setting:
    """One value, where it came from, and whether it may be shown as it is."""

    key: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tree with its history. ``warnings`` are sentences for the user."""

    config: Config
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    file: Path | None

    def settings(self) -> list[Setting]:
        """Every setting in the order of the tree, passwords masked."""
        values = dict(flat(self.config.model_dump()))
        return [
            Setting(key, mask_whole_url(value) if isinstance(value, str) else value, self.origins.get(key, "default"))
            for key, value in values.items()
        ]


def load(
    flags: Mapping[str, object], environ: Mapping[str, str], *, file: Path | None = None, folder: Path | None = None
) -> Loaded:
    """Merge file < environment < flags into one checked tree.

    ``flags`` has dotted keys (``relay.batch``); a None is a flag that was not given. The file is ``file``, else
    the one that ``PILLARBOX_CONFIG`` names, else ``pillarbox.toml`` in ``folder`` (default: the working directory).
    Raises ConfigError (PB-001) for unknown keys and unusable values, DeadlineTooLong (PB-030).
    """
    path = find_file(file, environ, folder or Path())
    given = {key: value for key, value in flags.items() if value is not None}
    layers = [
        (f"file {path}", read_file(path) if path else {}),
        ("environment", read_environment(environ)),
        ("flag", _nested(given)),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, layer in layers:
        _merge(merged, layer)
        origins.update({key: _origin(name, key) for key, _ in flat(layer)})
    return Loaded(_validated(merged, origins), origins, tuple(unknown_names(environ)), path)


def _validated(merged: dict[str, Any], origins: Mapping[str, str]) -> Config:
    try:
        return Config(**merged)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        shown = "" if isinstance(first["input"], Mapping) else f" (got {mask_url(repr(first['input']))})"
        raise ConfigError(f"{key}, from {origins.get(key, 'several settings together')}: {said}{shown}.") from error


def _origin(layer: str, key: str) -> str:
    return {"environment": f"environment {variable(key)}", "flag": f"flag {FLAGS.get(key, key)}"}.get(layer, layer)


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _nested(given: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in given.items():
        *sections, name = key.split(".")
        level = tree
        for section in sections:
            level = level.setdefault(section, {})
        level[name] = value
    return tree
