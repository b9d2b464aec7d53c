"""The command line's settings: one frozen tree, filled from file, environment and flags, in this order.

Only the command line reads it. Library objects (Outbox, Relay, Consumer, …) know nothing but their arguments.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from .errors import ConfigError, DeadlineTooLong
from .masking import mask_url, mask_whole_url

PREFIX: Final = "PILLARBOX_"
FILE_NAME: Final = "pillarbox.toml"
FILE_VARIABLE: Final = "PILLARBOX_CONFIG"
NOT_SETTINGS: Final = (FILE_VARIABLE, "PILLARBOX_TEST_", "PILLARBOX_REQUIRE_SERVICES")
"""Names (or beginnings) that other parts own: no warning about them."""

OUTBOX_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,19}$"
"""What an outbox may be called under ``[outboxes]``: it becomes part of relay ids and metrics."""

FLAGS: Final = {
    "database": "--database",
    "broker": "--broker",
    "table_prefix": "--table-prefix",
    "relay.id": "--relay-id",
    "relay.ownership": "--ownership",
    "relay.on_failure": "--on-failure",
    "relay.lease": "--lease",
    "relay.broker_deadline": "--broker-deadline",
    "relay.batch": "--batch",
    "relay.stop_deadline": "--stop-deadline",
    "relay.http": "--http",
    "relay.processes": "--processes",
    "relay.listen": "--listen",
    "retention.keep": "--keep",
    "retention.keep_dead": "--keep-dead",
    "retention.rate": "--rate",
    "retention.batch": "--batch",
    "retention.archive": "--archive",
    "log.level": "--log-level",
    "log.json_lines": "--log-json",
}
"""The settings that have an option, and its name. The others live in the file and the environment only."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Level = Annotated[
    Literal["debug", "info", "warning", "error"], BeforeValidator(lambda v: v.lower() if isinstance(v, str) else v)
]


_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def _duration(value: object) -> object:
    """``"7d"`` as seconds; numbers, and what is no duration, as they are."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value)):
        return float(found[1]) * _UNITS[found[2]]
    return value


def _rate(value: object) -> object:
    """``"500/s"`` as 500."""
    return value.strip().removesuffix("/s") if isinstance(value, str) else value


KeepTime = Annotated[float, Field(ge=0, le=100 * 366 * 86_400, allow_inf_nan=False), BeforeValidator(_duration)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_rate)]


class _Section(BaseModel):
    # Unknown keys: refused by `_check_keys` for the file (with a suggestion), warned about for the environment.
    model_config = ConfigDict(frozen=True, extra="ignore")


class RetryConfig(_Section):
    """When a failed event is tried again."""

    base: Seconds = 1.0
    cap: Seconds = 60.0
    max_attempts: Annotated[int, Field(ge=1, le=30_000)] = 10
    max_unknown: Annotated[int, Field(ge=1, le=30_000)] | None = None
    jitter: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.base > self.cap:
            raise ValueError(f"base ({self.base:g}) is above cap ({self.cap:g})")
        return self


class RelayConfig(_Section):
    """How the relay claims and publishes. All times in seconds."""

    id: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[!-~]+$")] | None = None
    ownership: Literal["partition", "row"] = "partition"
    on_failure: Literal["hold", "skip"] = "hold"
    lease: Seconds = 60.0
    broker_deadline: Seconds = 20.0
    batch: Annotated[int, Field(ge=1, le=10_000)] = 2000
    max_bytes: Annotated[int, Field(ge=1_048_576)] = 33_554_432
    poll_min: Seconds = 0.005
    poll_max: Seconds = 0.56
    linger: Annotated[float, Field(ge=0, le=3600)] = 1.0
    late_commit: Seconds = 900.0
    due_interval: Seconds = 0.5
    probe_interval: Seconds = 1.0
    stop_deadline: Seconds = 25.0
    http: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    listen: bool = False
    retry: RetryConfig = RetryConfig()

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        if self.broker_deadline >= self.lease / 2:
            raise DeadlineTooLong(
                f"The broker deadline of {self.broker_deadline:g} s does not fit the lease of {self.lease:g} s."
            )
        if self.poll_min > self.poll_max:
            raise ValueError(f"poll_min ({self.poll_min:g}) is above poll_max ({self.poll_max:g})")
        return self


class RetentionConfig(_Section):
    """How long finished events stay. Keep times are seconds, or a number with s, m, h, d or w."""

    by_relay: bool = False
    keep: KeepTime = 604_800.0
    keep_dead: KeepTime | None = None
    rate: Rate = 0.0
    batch: Annotated[int, Field(ge=1, le=10_000)] = 500
    interval: Seconds = 60.0
    archive: Annotated[str, Field(pattern=r"^(table|[^:]+:[^:]+)$")] | None = None
    minimal_row_image: bool = False


class OutboxConfig(_Section):
    """One of several outboxes that a relay process serves. Without a broker or a table prefix of its own it uses the
    common one."""

    database: Annotated[str, Field(min_length=1)]
    broker: str | None = None
    table_prefix: str | None = None


class LogConfig(_Section):
    """What the command line logs, on stderr."""

    level: Level = "info"
    json_lines: bool = False


class Config(BaseSettings):
    """Every setting of the command line."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True
    )

    database: str | None = None
    broker: str | None = None
    table_prefix: str = ""
    outboxes: dict[Annotated[str, Field(pattern=OUTBOX_NAME)], OutboxConfig] = {}
    relay: RelayConfig = RelayConfig()
    retention: RetentionConfig = RetentionConfig()
    log: LogConfig = LogConfig()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # `load` merges the sources itself, to know where each value came from


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
        values = dict(_flat(self.config.model_dump()))
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
    path = _find_file(file, environ, folder or Path())
    given = {key: value for key, value in flags.items() if value is not None}
    layers = [
        (f"file {path}", _read_file(path) if path else {}),
        ("environment", _read_environment(environ)),
        ("flag", _nested(given)),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, layer in layers:
        _merge(merged, layer)
        origins.update({key: _origin(name, key) for key, _ in _flat(layer)})
    return Loaded(_validated(merged, origins), origins, tuple(_unknown_names(environ)), path)


def keys() -> list[str]:
    """The dotted name of every setting."""
    return [key for key, _ in _flat(Config().model_dump())]


def of_outbox(config: Config, name: str) -> Config:
    """The tree as the relay of one of ``[outboxes]`` sees it: that database, its broker and prefix or the common ones.

    Raises ConfigError (PB-001) that lists the names when there is no such outbox.
    """
    chosen = config.outboxes.get(name)
    if chosen is None:
        raise ConfigError(f"There is no outbox {name!r} in the settings.", fix=_choose(config))
    prefix = config.table_prefix if chosen.table_prefix is None else chosen.table_prefix
    return config.model_copy(
        update={
            "database": chosen.database,
            "broker": chosen.broker or config.broker,
            "table_prefix": prefix,
            "outboxes": {},
        }
    )


def only_outbox(config: Config) -> Config:
    """The tree as a command that works on one outbox sees it, when nobody said which.

    That is the common ``database``, if there is one, else the only one of ``[outboxes]``. Of several none is guessed:
    ConfigError (PB-001) lists them.
    """
    if config.database or not config.outboxes:
        return config
    if len(config.outboxes) > 1:
        raise ConfigError("The settings have several outboxes, and the command works on one.", fix=_choose(config))
    return of_outbox(config, *config.outboxes)


def alone(config: Config, name: str) -> Config:
    """The tree with this one of ``[outboxes]`` and no other, for a relay that keeps its name. ConfigError (PB-001)."""
    of_outbox(config, name)
    return config.model_copy(update={"outboxes": {name: config.outboxes[name]}})


def _choose(config: Config) -> str:
    if not config.outboxes:
        return "There are no [outboxes] at all; leave --outbox out."
    return f"Say which with --outbox: {', '.join(sorted(config.outboxes))}."


def variable(key: str) -> str:
    """The environment variable of a setting: ``relay.batch`` is ``PILLARBOX_RELAY__BATCH``."""
    return PREFIX + key.upper().replace(".", "__")


def _find_file(file: Path | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    usual = folder / FILE_NAME
    return usual if usual.is_file() else None


def _read_file(path: Path) -> dict[str, Any]:
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


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    known = {variable(key).lower() for key in keys()}
    source = EnvSettingsSource(Config)
    source.env_vars = {
        name.lower(): value
        for name, value in environ.items()
        if value and (name.lower() in known or _is_of_outbox(name))
    }
    return source()


def _unknown_names(environ: Mapping[str, str]) -> Iterator[str]:
    known = [variable(key) for key in keys()]
    for name in sorted(environ):
        ours = name in known or name.startswith(NOT_SETTINGS) or _is_of_outbox(name)
        if name.startswith(PREFIX) and not ours:
            yield f"{name} is no setting and has no effect. {_suggest(name, known, 'Remove it.')}"


def _suggest(name: str, known: list[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else otherwise


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


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value
