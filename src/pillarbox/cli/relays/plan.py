"""Which relays one process runs, decided from the settings before anything is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...config import Config, of_outbox
from ...errors import ConfigError
from ...store.naming import check_prefix
from ...wiring import broker_url, database_url, dialect_name, new_relay_id

DEFAULT: Final = "default"
"""The name of an outbox that has none, in metrics."""

_LONGEST_ID: Final = 64


class Planned(NamedTuple):
    """One relay: its place, its name, and the settings as it sees them."""

    process: int
    outbox: str
    relay_id: str
    config: Config


def planned(config: Config, process: int | None = None, *, database_given: bool = False) -> list[Planned]:
    """The relays of one process; ``process`` is its number among several, None for one alone.

    Raises ConfigError (PB-001), BadUrl (PB-002) and BadTablePrefix (PB-033) for settings that no restart would mend.
    """
    base = config.relay.id or new_relay_id()
    number = process or 0
    if not config.outboxes or database_given:
        chosen = [(DEFAULT, config, "")]
    else:
        chosen = [(name, of_outbox(config, name), f".{name}") for name in config.outboxes]
    chosen = [(name, _checked(name, one), suffix) for name, one, suffix in chosen]
    _refuse_twins(chosen)
    # A name that was given belongs to all of them, and must still tell them apart.
    place = f".{process}" if process is not None and config.relay.id else ""
    return [Planned(number, name, _id(base, place + suffix), one) for name, one, suffix in chosen]


def _checked(name: str, config: Config) -> Config:
    """Complete, and listening only where that can be; among several outboxes the others may be of another kind."""
    kind = dialect_name(database_url(config))
    broker_url(config)
    check_prefix(config.table_prefix)
    if not config.relay.listen or kind == "postgresql":
        return config
    if name == DEFAULT:
        raise ConfigError(f"Only PostgreSQL can be listened to, not {kind}.", fix="Leave relay.listen (--listen) out.")
    return config.model_copy(update={"relay": config.relay.model_copy(update={"listen": False})})


def _refuse_twins(chosen: Sequence[tuple[str, Config, str]]) -> None:
    """Two relays with two brokers on the same tables would each send a part of the events."""
    seen: dict[tuple[str, str], str] = {}
    for name, config, _ in chosen:
        other = seen.setdefault((database_url(config), config.table_prefix), name)
        if other != name:
            raise ConfigError(
                f"The outboxes {other} and {name} are the same tables of the same database.",
                fix="Give each a database, a schema or a table_prefix of its own; for more speed, use --processes.",
            )


def _id(base: str, suffix: str) -> str:
    return base[: _LONGEST_ID - len(suffix)] + suffix
