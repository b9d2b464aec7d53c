"""All experiments with Kafka alone, in their order; what cannot be run here says why, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...errors import ConfigError
from .cluster import private_cluster
from .idempotence import RETRIED_IDEMPOTENT, RETRIED_PLAIN, SENT_AGAIN, retried, sent_again
from .replicas import EARLY, LATE, early, late
from .trial import Trial
from .via import kafka_via, why_not

NEEDS_HOME: Final = "it kills brokers, so it needs a cluster of the lab's own: give --kafka-home DIR (a distribution)."
NEEDS_VIA: Final = (
    "proxies must stand before the brokers: give --broker with --kafka-via ADVERTISED=REAL,… or --kafka-home DIR."
)
SESSIONS: Final = (RETRIED_PLAIN, RETRIED_IDEMPOTENT, SENT_AGAIN)

Show = Callable[[Trial], None]


def run_trials(
    broker: str | None = None,
    *,
    via: str | None = None,
    home: Path | None = None,
    events: int = 20,
    show: Show = lambda trial: None,
) -> tuple[Trial, ...]:
    """Run what can be run; ``show`` hears of each trial as soon as it is over.

    ``broker`` is the URL of a cluster (``kafka://…``) for the trials of idempotence, whose answers are lost on the way
    ``via`` the proxies. ``home`` is a Kafka distribution, from which a cluster is started for the trials that kill
    brokers, and for the others if there is no ``broker``. Raises LabError (PB-100) when a cluster does not do what a
    trial waits for, ConfigError (PB-001) for a ``via`` that cannot be read.
    """
    done: list[Trial] = []

    def tell(trial: Trial) -> None:
        done.append(trial)
        show(trial)

    with private_cluster(home) if home is not None else nullcontext() as cluster:
        if broker is not None and via is not None:
            _idempotence(_bootstrap(broker), via, events, tell)
        elif cluster is not None:
            _idempotence(cluster.bootstrap, cluster.via, events, tell)
        else:
            _leave_out(SESSIONS, NEEDS_VIA, tell)
        if cluster is not None:
            for strike in (early, late):
                for trial in strike(cluster, events):
                    tell(trial)
        else:
            _leave_out((*EARLY, *LATE), NEEDS_HOME, tell)
    return tuple(done)


def _idempotence(direct: str, via: str, events: int, tell: Show) -> None:
    if (reason := why_not(via)) is not None:
        _leave_out(SESSIONS, reason, tell)
        return
    with kafka_via(via) as proxies:
        for trial in SESSIONS:
            run = sent_again if trial is SENT_AGAIN else retried
            tell(run(trial, direct, proxies, events))


def _leave_out(trials: Sequence[Trial], reason: str, tell: Show) -> None:
    for trial in trials:
        tell(replace(trial, reason=reason))


def _bootstrap(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme != "kafka" or not rest or "@" in rest or "?" in rest:
        raise ConfigError("The lab's Kafka experiments take --broker kafka://host:port,… without user and options.")
    return rest.rstrip("/")
