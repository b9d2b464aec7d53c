"""What Kafka's idempotent producer takes care of, and what it does not: retries of one session, and nothing beyond it.

In all three trials the broker stores each record and its answer is lost on the way: the proxies let requests pass and
swallow what brokers say. That a record is stored is asked of the broker itself, past the proxies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import uuid4

from .session import session
from .topics import Sending, length, places, sync, told, trial_topic, wait_for
from .trial import Setting, Trial
from .via import KafkaVia

_STORED = 20.0  # seconds for a broker to store what it was sent

_PATIENT: Final[Mapping[str, Setting]] = {
    "acks": "all",
    "message.timeout.ms": 60_000,
    "socket.timeout.ms": 20_000,  # longer than the strike: it is the cut that ends the connection, not a deadline
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
}

RETRIED_PLAIN: Final = Trial(
    id="K1",
    title="Retry within one session, without idempotence",
    fault="the answer to each record is lost, then the connection is reset; the client tries again by itself",
    why="The broker has no way to recognise the second copy: the client's own retry is a new record.",
    expect_doubled="all",
    expect_gone="none",
    settings={**_PATIENT, "enable.idempotence": False},
)
RETRIED_IDEMPOTENT: Final = Trial(
    id="K2",
    title="Retry within one session, with idempotence",
    fault="the answer to each record is lost, then the connection is reset; the client tries again by itself",
    why="The broker knows the producer's id and sequence number, and answers with the record that it has.",
    expect_doubled="none",
    expect_gone="none",
    settings={**_PATIENT, "enable.idempotence": True},
)
SENT_AGAIN: Final = Trial(
    id="K3",
    title="Sent again by the next session, with idempotence",
    fault="the answers are lost, the process is killed; started again, it sends what it has no answer for",
    why="The new process is a new producer: for the broker its records have nothing to do with those of the old one.",
    expect_doubled="all",
    expect_gone="none",
    settings={**_PATIENT, "enable.idempotence": True},
)


def retried(trial: Trial, direct: str, via: KafkaVia, events: int = 20) -> Trial:
    """Run :data:`RETRIED_PLAIN` or :data:`RETRIED_IDEMPOTENT`; ``direct``: the brokers' addresses past the proxies."""
    begin = time.monotonic()
    event_ids = _ids(events)
    with trial_topic(direct, trial.id) as topic:
        before = sync(direct, topic, "before")
        sending = Sending(via.bootstrap, topic, trial.settings)
        sending.warm_up()
        for event_id in event_ids:
            stored = length(direct, topic)
            via.lose_answers()
            sending.send(event_id)
            wait_for(lambda n=stored: length(direct, topic) > n, "the record is stored", _STORED)  # type: ignore[misc]
            via.cut()
            via.heal()
            sending.flush(_STORED)
        found = told(event_ids, sending.told, places(direct, topic))
        return replace(
            trial, events=found, sync=(before, sync(direct, topic, "after")), seconds=time.monotonic() - begin
        )


def sent_again(trial: Trial, direct: str, via: KafkaVia, events: int = 20) -> Trial:
    """Run :data:`SENT_AGAIN`: two processes, of which the first is killed with SIGKILL."""
    begin = time.monotonic()
    event_ids = _ids(events)
    with trial_topic(direct, trial.id) as topic:
        before = sync(direct, topic, "before")
        with session(via.bootstrap, topic, trial.settings, event_ids) as first:
            stored = length(direct, topic)
            via.lose_answers()
            first.go()
            wait_for(lambda: length(direct, topic) >= stored + events, "the records are stored", _STORED)
            ended = first.kill()
            via.cut()
            via.heal()
        with session(via.bootstrap, topic, trial.settings, event_ids) as second:
            second.go()
            acknowledged = second.acknowledged()
        found = told(event_ids, acknowledged, places(direct, topic))
        return replace(
            trial,
            events=found,
            sync=(before, sync(direct, topic, "after")),
            notes=(f"the first process ended by {ended}, having been told of no record",),
            seconds=time.monotonic() - begin,
        )


def _ids(events: int) -> list[str]:
    return [str(uuid4()) for _ in range(events)]
