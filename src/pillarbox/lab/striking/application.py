"""Striking applications: one event after the other, the fault at its point, and a fresh start behind it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Final, assert_never

from ...errors import LabError
from ..model import CommitFails, EventId, Fail, Freeze, Kill, Lane, LoseAnswer
from ..process import Process, Reached
from ..schedule import Stroke
from ..stage import Link, Stage

ARRIVES: Final = 3.0
"""Seconds within which the server answers into the cut link: what was sent has then reached it."""


def strike_applications(stage: Stage, strategy: str) -> None:
    """Hand out all events of the cell; in each, the fault strikes. At the end the application runs once unharmed."""
    fault = stage.plan.fault
    with ExitStack() as open_links:
        link: Link | None = None
        shop_url = broker_url = None
        if isinstance(fault, LoseAnswer):
            found = open_links.enter_context(stage.link_to(fault.server))
            if found is None:
                raise LabError(f"{stage.key}: no proxy can stand before the {fault.server}.")
            link, url = found
            shop_url, broker_url = (url, None) if fault.server == "database" else (None, url)
        process: Process | None = None
        for stroke in stage.strokes:
            if process is None:
                process = stage.application(strategy, waits_at={fault.point}, shop_url=shop_url, broker_url=broker_url)
            if _strike(stage, process, stroke, link):
                process = None
        if process is not None:
            _say_goodbye(stage, process)
        _say_goodbye(stage, stage.application(strategy))  # Kafka's open transaction is aborted by its successor


def serve(stage: Stage, strategy: str, strokes: tuple[Stroke, ...]) -> None:
    """Let an application serve these events without any fault."""
    process = stage.application(strategy)
    for stroke in strokes:
        stage_ready = _ready(stage, process)
        process.go(stage_ready, alarm=asdict(stroke.alarm))
    _say_goodbye(stage, process)
    failed = process.count("application.failed")
    if failed:
        raise LabError(f"{stage.key}: {failed} of {len(strokes)} events were not served, though nothing was struck.")


def _strike(stage: Stage, process: Process, stroke: Stroke, link: Link | None) -> bool:
    """One event, struck at the fault's point. Returns True when the process is no more."""
    fault, event_id = stage.plan.fault, EventId(stroke.alarm.event_id)
    process.go(_ready(stage, process), alarm=asdict(stroke.alarm))
    reached = _at_the_point(stage, process, fault.point)
    stage.struck.add(event_id)
    time.sleep(stroke.pause)
    match fault:
        case Kill():
            stage.recorder.struck(process, "SIGKILL", event_id)
            process.kill()
            return True
        case Fail():
            stage.recorder.struck(process, "an exception is raised", event_id)
            process.fail(reached)
            return False
        case LoseAnswer(_, server):
            assert link is not None
            _lose_the_answer(stage, process, reached, link, server, event_id)
        case CommitFails():
            from ..senders.kafka import fence

            fence(stage.broker.url, stage.transactional_id)
            stage.recorder.note(Lane.BROKER, "another producer takes the transactional id", event_id)
            process.go(reached)
        case Freeze():
            raise LabError("Freeze is a fault of relays and consumers.")
        case _:
            assert_never(fault)
    _say_goodbye(stage, process)  # a client that was struck is not used again
    return True


def _lose_the_answer(
    stage: Stage, process: Process, reached: Reached, link: Link, server: str, event_id: EventId
) -> None:
    """The answer is lost, then the link is cut; it is whole again when the program has noticed, either way."""
    lane = Lane.DATABASE if server == "database" else Lane.BROKER
    before = link.lost
    link.lose_answers()
    stage.recorder.note(lane, f"from here on the answers of the {server} are lost", event_id)
    process.go(reached)
    if not stage.quiet_within(lambda: link.lost > before or process.is_over, ARRIVES):
        raise LabError(f"{stage.key}: the {server} did not answer, so nothing can have been lost.")
    link.refuse()
    stage.recorder.note(lane, f"the link to the {server} is cut", event_id)
    heals_at = {"application.failed", "s3.failed", "application.ready", "s3.acknowledged"}
    while (report := stage.next(process)) is not None:
        if report.point in heals_at:
            break
    link.heal()
    stage.recorder.note(lane, f"the link to the {server} is whole again", event_id)
    if report is not None and report.point == "application.ready":
        process.go(report, alarm=None)


def _ready(stage: Stage, process: Process) -> Reached:
    while (report := stage.next(process)) is not None:
        if report.point == "application.ready":
            return report
        if report.ticket is not None:  # struck once, and now it tries again
            process.go(report)
    raise LabError(f"{stage.key}: the application has ended: {process.exit.how if process.exit else ''}.")


def _at_the_point(stage: Stage, process: Process, point: str) -> Reached:
    while (report := stage.next(process)) is not None:
        if report.point == point and report.ticket is not None:
            return report
        if report.point == "application.ready":
            raise LabError(f"{stage.key}: the request ended without reaching {point}.")
    raise LabError(f"{stage.key}: the application has ended: {process.exit.how if process.exit else ''}.")


def _say_goodbye(stage: Stage, process: Process) -> None:
    """Let it end by itself: there are no more requests."""
    while (report := stage.next(process)) is not None:
        if report.point == "application.ready":
            process.go(report, alarm=None)
        elif report.ticket is not None:  # what is behind the fault, a retry for instance, is left alone
            process.go(report)
