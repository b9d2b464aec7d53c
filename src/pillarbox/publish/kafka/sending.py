"""Handing a batch to the client and waiting for its reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

from confluent_kafka import KafkaError, KafkaException, Producer

from ..streams import Gate
from .client import serve
from .flight import Flight

_PATIENCE: Final = 3.0
"""Seconds without any report after which the cluster is asked whether waiting makes sense; then every 2 seconds."""

_SILENCE: Final = 8.0
"""Seconds without any report after which a cluster that answers nothing is given up. A new leader takes 6."""

_ANY_PARTITION: Final = -1
"""The client chooses, by the key."""

Ending = Literal["sound", "failed", "given up"]
"""All is confirmed; a message failed; or reports are missing, and nobody waits for them any more."""

Hopeless = Callable[[Flight, bool, float], bool]
"""Called with the flight, whether the silence is long, and the seconds it may take to find out."""


def send(producer: Producer, flight: Flight, indexes: Sequence[int], *, until: float, hopeless: Hopeless) -> bool:
    """Hand over these messages and wait, until each has its report, ``until`` is reached, or it is ``hopeless``.

    False: the producer is of no more use.
    """
    hand_over(producer, flight, indexes, until)
    _wait(producer, flight, until, hopeless, stop=lambda: flight.broken)
    return _clear(producer, flight)


def send_in_order(
    producer: Producer, flight: Flight, indexes: Sequence[int], gate: Gate, *, until: float, hopeless: Hopeless
) -> bool:
    """The same, until one report is a failure: then nothing more is sent, and only what is under way is waited for.

    What the gate stops is not handed over, and what the client itself refuses closes it.
    """
    hand_over(producer, flight, indexes, until, gate)
    return await_in_order(producer, [flight], until=until, hopeless=hopeless) == "sound"


def await_in_order(producer: Producer, flights: Sequence[Flight], *, until: float, hopeless: Hopeless) -> Ending:
    """Wait until the first is confirmed or a report is a failure. Unless it is sound, the producer must be discarded.

    ``hopeless`` is asked about the first flight; the producer has no others than these.
    """

    def failed() -> bool:
        return any(flight.broken or flight.reported for flight in flights)

    first = flights[0]
    _wait(producer, first, until, hopeless, stop=lambda: failed() or first.is_confirmed)
    if first.is_confirmed and not failed():
        return "sound"  # those behind it may still be under way, each with its own time
    ending: Ending = "failed" if failed() else "sound"
    while ending == "failed" and len(producer) and time.monotonic() < until:
        # Again and again: what is under way may come back to the queue, where a broken producer leaves it for ever.
        producer.purge(in_flight=False)
        _serve(producer, first, 0.02)
    # After a purge the sequence numbers have a gap.
    return ending if _clear(producer, first) or ending == "failed" else "given up"


def hand_over(
    producer: Producer, flight: Flight, indexes: Sequence[int], until: float, gate: Gate | None = None
) -> bool:
    """Give these messages to the client. What the gate stops is left out, and what the client refuses closes it.

    False: the queue stayed full until the time was over, or the producer broke; the last ones were not given to it.
    """
    produce, messages, report, headers_of = producer.produce, flight.messages, flight.reporter(), flight.headers_of
    for index in indexes:
        message = messages[index]
        if gate and gate.stops(message):
            continue
        while True:
            try:
                # No timestamp (0): retention goes by it, and an old event must not expire as soon as it is written.
                # The other arguments by their places, too: the binding takes a third of its time to look up names.
                produce(
                    message.destination,
                    message.payload,
                    message.key,
                    _ANY_PARTITION,
                    partial(report, index),
                    None,
                    0,
                    headers_of(message),  # type: ignore[arg-type]  # lists are invariant
                )
            except BufferError:  # the client's queue is full: serve reports until there is room
                if gate is not None and (flight.broken or flight.reported or time.monotonic() >= until):
                    return False
                if _make_room(producer, flight, until):
                    continue
                flight.fail(index, KafkaError(KafkaError._QUEUE_FULL))
            except KafkaException as error:
                flight.fail(index, error.args[0])
                if gate is not None:
                    if flight.broken:  # it was not this message's fault
                        del flight.failures[index]
                        return False
                    gate.close(message)
            break
    return True


def _make_room(producer: Producer, flight: Flight, until: float) -> bool:
    """False when there will be none in time, or never: the message alone is more than the queue takes."""
    if time.monotonic() >= until or not len(producer):
        return False
    _serve(producer, flight, 0.05)
    return True


def _wait(producer: Producer, flight: Flight, until: float, hopeless: Hopeless, *, stop: Callable[[], bool]) -> None:
    waiting, quiet_since, ask_after = len(producer), time.monotonic(), _PATIENCE
    while waiting and not stop():
        now = time.monotonic()
        if now >= until:
            return
        if now - quiet_since >= ask_after:
            ask_after += 2.0
            if hopeless(flight, now - quiet_since >= _SILENCE, min(2.0, until - now)):
                return
            continue
        left = _serve(producer, flight, until - now)
        if left < waiting:
            quiet_since, ask_after = time.monotonic(), _PATIENCE
        waiting = left


def _clear(producer: Producer, flight: Flight) -> bool:
    """Purge what is left, so that nothing is sent later unnoticed. False: the producer must be thrown away."""
    broken, left = flight.broken, len(producer)
    if left:
        # The binding's `blocking` means the opposite of what it says, so the reports are waited for here.
        producer.purge()
        deadline = time.monotonic() + 1.0
        while _serve(producer, flight, 0.1) and time.monotonic() < deadline:
            pass
    flight.broken = False
    return not left and not broken


def _serve(producer: Producer, flight: Flight, seconds: float) -> int:
    left, broken = serve(producer, seconds)
    flight.broken = flight.broken or broken
    return left
