"""What a run of the lab is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import ConfigError

MOST_ROUNDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LabOptions:
    """Which cells run, where, how often, and with which chance.

    Without ``database`` and ``broker``: SQLite files and an embedded log. ``windows`` and ``strategies`` are ids
    (``W2``, ``S3``, a way of consuming like ``C1``); empty means all. ``rounds`` is the number of events of each cell.
    The same ``seed`` makes the same sequence of faults. ``out`` is the directory into which finished cells are written.
    ``kafka_via`` (``advertised=real`` of every broker, see :mod:`pillarbox.lab.kafka.via`) puts the lab's proxies
    before Kafka: only so can its answers be lost on the way. ``parallel`` cells run at a time.

    Raises ConfigError (PB-001) for what cannot be run.

    >>> LabOptions(windows=("W2",), rounds=3).wants("W2", "S3")
    True
    """

    database: str | None = None
    broker: str | None = None
    windows: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    rounds: int = 20
    seed: int = 7
    out: Path | None = None
    kafka_via: str | None = None
    parallel: int = 2

    def __post_init__(self) -> None:
        from .consumers import WAYS
        from .strategies import STRATEGIES
        from .windows import WINDOWS

        _refuse_unknown("window", self.windows, [one.id for one in WINDOWS])
        _refuse_unknown("strategy", self.strategies, [one.id for one in (*STRATEGIES, *WAYS)])
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise ConfigError(f"--rounds takes 1 to {MOST_ROUNDS:,} events per cell, got {self.rounds}.")
        if not 1 <= self.parallel <= 8:
            raise ConfigError(f"1 to 8 cells run at a time, not {self.parallel}.")

    def wants(self, window: str, strategy: str) -> bool:
        """Whether this cell is asked for."""
        return (not self.windows or window in self.windows) and (not self.strategies or strategy in self.strategies)


def _refuse_unknown(what: str, given: tuple[str, ...], known: list[str]) -> None:
    for one in given:
        if one not in known:
            raise ConfigError(
                f"There is no {what} {one!r}; the lab has {', '.join(known)}.",
                fix="`pillarbox lab list` explains them.",
            )
