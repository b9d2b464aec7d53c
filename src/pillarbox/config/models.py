"""The tree of settings: its sections, their defaults and what each value may be."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ..errors import DeadlineTooLong
from .names import OUTBOX_NAME, PREFIX

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
