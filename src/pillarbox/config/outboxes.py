"""The tree as one of several outboxes sees it."""

from __future__ import annotations

from ..errors import ConfigError
from .models import Config


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
