"""The file and the environment as trees of values; names that are no setting are refused or warned about."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource

from ..errors import ConfigError
from .models import Config, OutboxConfig
from .names import FILE_NAME, FILE_VARIABLE, NOT_SETTINGS, PREFIX, variable


def keys() -> list[str]:
    """The dotted name of every setting."""
    return [key for key, _ in flat(Config().model_dump())]


def find_file(file: Path | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    usual = folder / FILE_NAME
    return usual if usual.is_file() else None


def read_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} cannot be read: {error.strerror}.",
            fix="Correct the path, or its permissions.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.", fix="Correct the file at that place.") from error
    _check_keys(found, Config, path)
    return found


def read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    known = {variable(key).lower() for key in keys()}
    source = EnvSettingsSource(Config)
    source.env_vars = {
        name.lower(): value
        for name, value in environ.items()
        if value and (name.lower() in known or _is_of_outbox(name))
    }
    return source()


def unknown_names(environ: Mapping[str, str]) -> Iterator[str]:
    known = [variable(key) for key in keys()]
    for name in sorted(environ):
        ours = name in known or name.startswith(NOT_SETTINGS) or _is_of_outbox(name)
        if name.startswith(PREFIX) and not ours:
            yield f"{name} is no setting and has no effect. {_suggest(name, known, 'Remove it.')}"


def flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _check_keys(found: Mapping[str, Any], model: type[BaseModel], path: Path, above: str = "") -> None:
    own = [above + name for name in model.model_fields]
    for name, value in found.items():
        key = above + name
        if key == "outboxes" and isinstance(value, Mapping):
            _check_outboxes(value, path)
            continue
        if name not in model.model_fields:
            raise ConfigError(f"{key} in {path} is no setting.", fix=_suggest(key, [*keys(), *own], "Remove it."))
        section = type(model.model_fields[name].default)
        if issubclass(section, BaseModel):
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"{key} in {path} is a table, not a value.", fix=f"Write [{key}] and its settings below it."
                )
            _check_keys(value, section, path, key + ".")


def _check_outboxes(found: Mapping[str, Any], path: Path) -> None:
    for name, value in found.items():
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"outboxes.{name} in {path} is a table, not a value.", fix=f"Write [outboxes.{name}] and its settings."
            )
        _check_keys(value, OutboxConfig, path, f"outboxes.{name}.")


def _is_of_outbox(name: str) -> bool:
    """``PILLARBOX_OUTBOXES__SHOP__DATABASE``"""
    above, _, last = name.upper().rpartition("__")
    return above.startswith(variable("outboxes") + "__") and last in ("DATABASE", "BROKER", "TABLE_PREFIX")


def _suggest(name: str, known: list[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else otherwise
