"""Handing a batch to the client and waiting for its reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from ...event.message import to_headers
from .flight import Flight

_PATIENCE: Final = 3.0
"""Seconds without any report after which the cluster is asked whether waiting makes sense; then every 2 seconds."""

_SILENCE: Final = 8.0
"""Seconds without any report after which a cluster that answers nothing is given up. A new leader takes 6."""

Hopeless = Callable[[Flight, bool, float], bool]
"""Called with the flight, whether the silence is long, and the seconds it may take to find out."""


def send(
    producer: Producer,
    flight: Flight,
    indexes: Sequence[int],
    *,
    until: float,
    hopeless: Hopeless,
) -> None:
    """Hand over these messages and wait, until each has its report, ``until`` is reached, or it is ``hopeless``."""
    produce, messages, report = producer.produce, flight.messages, flight.reporter()
    for index in indexes:
        message = messages[index]
        while True:
            try:
                # No timestamp: retention goes by it, and an old event must not expire as soon as it is written.
                produce(
                    message.destination,
                    message.payload,
                    message.key,
                    headers=to_headers(message),  # type: ignore[arg-type]  # lists are invariant
                    on_delivery=partial(report, index),
                )
            except BufferError:  # the client's queue is full: serve reports until there is room
                if time.monotonic() < until:
                    producer.poll(0.05)
                    continue
                flight.fail(index, KafkaError(KafkaError._QUEUE_FULL))
            except KafkaException as error:
                flight.fail(index, error.args[0])
            break
    _wait(producer, flight, until, hopeless)


def _wait(producer: Producer, flight: Flight, until: float, hopeless: Hopeless) -> None:
    waiting, quiet_since, ask_after = len(producer), time.monotonic(), _PATIENCE
    while waiting and not flight.broken:
        now = time.monotonic()
        if now >= until:
            return
        if now - quiet_since >= ask_after:
            ask_after += 2.0
            if hopeless(flight, now - quiet_since >= _SILENCE, min(2.0, until - now)):
                return
            continue
        left = producer.flush(min(0.5, until - now))
        if left < waiting:
            quiet_since, ask_after = time.monotonic(), _PATIENCE
        waiting = left
