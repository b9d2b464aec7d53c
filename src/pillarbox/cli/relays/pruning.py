"""Retention beside a relay (`retention.by_relay`): a pruner on a thread and connections of its own.

Every relay has one, and the pruners' own lock lets one of them work at a time. Its trouble is not the relay's: it is
logged, and tried again after `retention.interval`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...config import Config
from ...errors import PillarboxError
from ...wiring import open_pruning_engine, prune_rules
from ..loading import load_function

if TYPE_CHECKING:
    from ...ops.prune import HandOver, Rules

log = logging.getLogger("pillarbox.prune")

_LAST_STEP = 10.0  # seconds for the step under way when the relay ends; a step is some milliseconds


class Pruned:
    """How many events this process has removed."""

    def __init__(self) -> None:
        self.events = 0


@contextmanager
def pruning(config: Config, pruned: Pruned) -> Iterator[None]:
    """Prune for the length of the block, if so configured. NotImportable (PB-051): the archive is no function."""
    if not config.retention.by_relay:
        yield
        return
    target = config.retention.archive
    rules = prune_rules(config, _hand_over(target) if target and ":" in target else None)
    stopping = threading.Event()
    thread = threading.Thread(target=_run, args=(config, rules, stopping, pruned), name="pillarbox-pruner", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(_LAST_STEP)


def _hand_over(target: str) -> HandOver:
    return load_function(target)


def _run(config: Config, rules: Rules, stopping: threading.Event, pruned: Pruned) -> None:
    while not stopping.is_set():
        try:
            _prune(config, rules, stopping, pruned)
        except PillarboxError as error:
            log.error("pruning failed, trying again in %g s: %s", rules.interval, error)
            stopping.wait(rules.interval)


def _prune(config: Config, rules: Rules, stopping: threading.Event, pruned: Pruned) -> None:
    from ...ops.prune import Pruner

    with open_pruning_engine(config) as engine:
        pruner = Pruner(engine, rules)
        try:
            pause = 0.0
            while not stopping.wait(pause):
                step = pruner.step()
                pruned.events += step.removed
                pause = step.pause
        finally:
            pruner.close()
