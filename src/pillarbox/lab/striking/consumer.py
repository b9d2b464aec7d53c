"""Striking consumers: what was sent without any fault is taken by a consumer, and the fault hits that one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from ...errors import LabError
from ..model import EventId, Freeze, Kill
from ..process import Process, Reached
from ..reading import Reading
from ..schedule import Stroke, waves
from ..stage import CONSUMER_LEASE, Link, Stage
from .application import serve

AT_ONCE: Final = 10
"""Events of one stroke at most: a killed consumer's share has to become free each time."""

_GATHERS: Final = 1.0
"""Seconds without a further one after which those that wait at the point are all that will."""


_TAKES_OVER: Final = 3.0
"""Seconds within which the second consumer has the first one's messages, where nothing stops it."""

_QUIET: Final = 1.0
"""Seconds without anything happening after which a consumer is taken to have nothing to do."""


def strike_consumers(stage: Stage, way: str, reading: Reading) -> None:
    """Wave after wave: events are sent, a consumer is struck with them in its hands, another one does the rest."""
    fault = stage.plan.fault
    for group in waves(stage.seed, stage.key, stage.strokes, AT_ONCE):
        serve(stage, "S2", group)
        if isinstance(fault, Kill):
            _kill(stage, way, group, fault.point)
            finish(stage, way, stage.consumer(way))
        elif isinstance(fault, Freeze):
            _race(stage, way, group, fault.point, reading)
        else:
            raise LabError(f"{stage.key}: {fault} is no fault of consumers.")


def read_everything(stage: Stage, ways: Sequence[str], reading: Reading) -> None:
    """Let consumers of these ways read all that the destination holds, at the same time."""
    records = stage.broker.records()
    ids = {record.event_id for record in records}
    started = [(way, stage.consumer(way)) for way in ways] if records else []
    for way, process in started:
        _until_all_is_read(stage, way, process, len(records), ids, reading)
    for _, process in started:
        process.stop()


def _until_all_is_read(
    stage: Stage, way: str, process: Process, count: int, ids: Collection[str], reading: Reading
) -> None:
    name, received = stage.name_of(way), "consumer.received" if way == "C2" else f"{way.lower()}.received"

    def all_is_read() -> bool:
        _over(stage, process)
        return process.count(received) >= count and reading.effects(name, ids) == len(ids)

    stage.until(all_is_read, f"the end of consumer {way}")


def finish(stage: Stage, way: str, process: Process) -> None:
    """Until the broker has an acknowledgement of everything; then the consumer ends in good order."""
    name = stage.name_of(way)
    while True:
        stage.until(partial(_nothing_left, stage, name, process), f"the end of consumer {way}", pause=0.1)
        process.stop()
        # What a queue has handed out shows only when it comes back.
        if stage.broker.committed(name).get("ready", 0) == 0:
            return
        process = stage.consumer(way)


def _nothing_left(stage: Stage, name: str, process: Process) -> bool:
    _over(stage, process)
    committed = stage.broker.committed(name)
    if "lag" in committed:
        return bool(committed["lag"] == 0)
    last = process.reached[-1].at if process.reached else process.began
    return committed["ready"] == 0 and time.time() - last > _QUIET


def _over(stage: Stage, process: Process) -> None:
    """LabError when it lives no more."""
    if process.is_over:
        raise LabError(f"{stage.key}: the consumer has ended: {process.exit.how.rstrip('.') if process.exit else ''}.")


def _kill(stage: Stage, way: str, group: Sequence[Stroke], point: str) -> None:
    """SIGKILL when the last event of the group reaches the point; those before it are not acknowledged, either."""
    consumer = stage.consumer(way, limit=len(group), waits_at={point})
    for number, stroke in enumerate(group, 1):
        reached = _at(stage, consumer, point)
        if number < len(group):
            consumer.go(reached)
            continue
        time.sleep(stroke.pause)
        stage.struck.update(_unacknowledged(consumer, way, point))
        stage.recorder.struck(consumer, "SIGKILL", reached.event_id)
        consumer.kill()


def _unacknowledged(consumer: Process, way: str, point: str) -> set[EventId]:
    """The events that were at the point since the last acknowledgement: a client fetches in pieces as it likes."""
    acknowledged = {"C0": "c0.acknowledged", "C1": "c1.acknowledged", "C2": "consumer.after-ack"}.get(way)
    found: set[EventId] = set()
    for one in consumer.reached:
        if one.point == acknowledged:
            found.clear()
        elif one.point == point and one.event_id is not None:
            found.add(one.event_id)
    return found


def _race(stage: Stage, way: str, group: Sequence[Stroke], point: str, reading: Reading) -> None:
    """SIGSTOP with all of the group at the point; the group's next member gets them, too; then the first goes on."""
    name, ids = stage.name_of(way), [one.alarm.event_id for one in group]
    with ExitStack() as links:
        link: Link | None = None
        url: str | None = None
        if stage.broker.name == "rabbitmq":
            found = links.enter_context(stage.link_to("broker"))
            link, url = found or (None, None)
        first = stage.consumer(way, workers=len(group), limit=len(group), waits_at={point}, broker_url=url)
        held = _gather(stage, first, point, len(group))
        stage.struck.update(one.event_id for one in held if one.event_id is not None)
        time.sleep(group[0].pause)
        first.freeze()
        stage.recorder.struck(first, "SIGSTOP")
        if link is not None:
            link.cut()
            stage.recorder.struck(first, "its connection is cut")
        second = stage.consumer(way, workers=len(group), limit=len(group))
        if way == "C2":  # its marks wait for the first one's transactions; on SQLite it waits before it can even look
            patience = CONSUMER_LEASE + _QUIET if stage.database.name == "sqlite" else _TAKES_OVER
            stage.quiet_within(lambda: second.count("consumer.received") > 0, patience)
            time.sleep(_QUIET)
        else:
            stage.until(lambda: reading.effects(name, ids) >= len(held), "the second delivery")
        first.thaw()
        stage.recorder.struck(first, "SIGCONT")
        for one in held:
            first.go(one)
        _let_finish(stage, first, len(held))
        finish(stage, way, second)


def _gather(stage: Stage, consumer: Process, point: str, most: int) -> list[Reached]:
    held = [_at(stage, consumer, point)]
    while len(held) < most:
        report = consumer.next(_GATHERS)
        if report is None:
            break
        if report.point == point and report.ticket is not None:
            held.append(report)
    return held


def _let_finish(stage: Stage, consumer: Process, count: int) -> None:
    """It handles what it held, tries to acknowledge, and is ended; what it thinks of the refusal is in its exit.

    While it ends, too, nothing of it is kept waiting at the point: on SQLite that would be the only writer, and the
    other consumer would wait for it until its patience ends.
    """
    done = ("c0.committed", "c1.committed", "consumer.after-commit")
    _go_on_until(stage, consumer, 10.0, lambda: sum(consumer.count(point) for point in done) >= count)
    consumer.ask_to_end()
    _go_on_until(stage, consumer, 5.0, lambda: False)
    if not consumer.is_over:
        consumer.kill()


def _go_on_until(stage: Stage, consumer: Process, seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not consumer.is_over and not condition():
        report = consumer.next(0.05)
        if report is not None and report.ticket is not None:
            consumer.go(report)
        stage.check()


def _at(stage: Stage, consumer: Process, point: str) -> Reached:
    while (report := stage.next(consumer)) is not None:
        if report.point == point and report.ticket is not None:
            return report
    raise LabError(f"{stage.key}: the consumer has ended: {consumer.exit.how if consumer.exit else ''}.")
