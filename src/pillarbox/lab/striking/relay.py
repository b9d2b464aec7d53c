"""Striking relays: several events wait in the outbox, a relay has them in its hands, and the fault hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, assert_never

from ...errors import LabError
from ..model import CommitFails, EventId, Fail, Freeze, Kill, Lane, LoseAnswer
from ..process import Process, Reached
from ..reading import Reading
from ..schedule import schedule, waves
from ..stage import BROKER_DEADLINE, LEASE, Link, Stage
from .application import serve

AT_ONCE: Final = 10
"""Events of one stroke at most: a killed relay's lease has to run out each time."""

_ANSWER_COMES_BACK: Final = 0.2
"""Seconds from a record that can be read to its confirmation at the relay, at most."""


def strike_relays(stage: Stage, strategy: str, reading: Reading) -> None:
    """Wave after wave: the events are written, a relay takes them and is struck, another one does the rest."""
    ownership = strategy.removeprefix("S5-")
    fault = stage.plan.fault
    if isinstance(fault, LoseAnswer):
        with stage.link_to("broker") as found:
            if found is None:
                raise LabError(f"{stage.key}: no proxy can stand before the broker.")
            link, url = found
            _lose_answers(stage, strategy, ownership, reading, link, url)
        return
    for group in waves(stage.seed, stage.key, stage.strokes, AT_ONCE):
        serve(stage, strategy, group)
        relay = stage.relay(ownership, waits_at={fault.point})
        reached = _at(stage, relay, fault.point)
        stage.struck.update(EventId(one.alarm.event_id) for one in group)
        time.sleep(group[0].pause)
        match fault:
            case Kill():
                stage.recorder.struck(relay, "SIGKILL")
                relay.kill()
                rest(stage, stage.relay(ownership), reading)
            case Fail():
                stage.recorder.struck(relay, "the answer is thrown away")
                relay.fail(reached)
                rest(stage, relay, reading)
            case Freeze():
                _freeze(stage, relay, reached, ownership, reading)
            case CommitFails():
                raise LabError("A relay commits no transaction of the broker.")
            case _:
                assert_never(fault)


def _freeze(stage: Stage, relay: Process, reached: Reached, ownership: str, reading: Reading) -> None:
    """SIGSTOP until the lease is over and another relay has sent everything; then the first one goes on."""
    relay.freeze()
    stage.recorder.struck(relay, f"SIGSTOP, for longer than its lease of {LEASE:g} s")
    second = stage.relay(ownership)
    stage.until(lambda: reading.waiting() == 0, "the second relay's end of the work")
    relay.thaw()
    stage.recorder.struck(relay, "SIGCONT")
    relay.go(reached)
    # It sends what it had claimed, and finds that it may not settle it.
    confirmed = relay.count("relay.after-confirm")
    _let_pass(stage, relay, lambda: relay.count("relay.after-confirm") > confirmed, BROKER_DEADLINE + 2 * LEASE)
    second.stop()
    rest(stage, relay, reading)


def _lose_answers(
    stage: Stage,
    strategy: str,
    ownership: str,
    reading: Reading,
    link: Link,
    url: str,
) -> None:
    """One more event goes through unharmed, so that the relay's connection stands; the cell's own lose their answers.

    While the relay waits with that one in its hands, the others are written: its next claim has all of them.
    """
    opening = schedule(stage.seed, stage.key, len(stage.strokes) + 1)[-1]
    stage.apart.add(EventId(opening.alarm.event_id))
    serve(stage, strategy, (opening,))
    relay = stage.relay(ownership, waits_at={"relay.after-claim"}, broker_url=url)
    unharmed = _at(stage, relay, "relay.after-claim")
    serve(stage, strategy, tuple(stage.strokes))
    relay.go(unharmed)
    reached = _at(stage, relay, "relay.after-claim")
    # A relay that sends in another thread claims on before the first answer is there.
    stage.until(lambda: bool(stage.broker.records()), "the opening event", pause=0.02)
    time.sleep(_ANSWER_COMES_BACK)
    before = link.lost
    link.lose_answers()
    stage.recorder.note(Lane.BROKER, "from here on the answers of the broker are lost")
    stage.struck.update(EventId(one.alarm.event_id) for one in stage.strokes)
    claims = relay.count("relay.after-claim")
    relay.go(reached)
    if not stage.quiet_within(lambda: link.lost > before, 3.0):
        raise LabError(f"{stage.key}: the broker did not answer, so nothing can have been lost.")
    _let_pass(stage, relay, lambda: relay.count("relay.after-confirm") >= claims)
    link.heal()
    stage.recorder.note(Lane.BROKER, "the link to the broker is whole again")
    rest(stage, relay, reading)


def _at(stage: Stage, relay: Process, point: str) -> Reached:
    while (report := stage.next(relay)) is not None:
        if report.point == point and report.ticket is not None:
            return report
    raise LabError(f"{stage.key}: the relay has ended: {relay.exit.how if relay.exit else ''}.")


def _let_pass(stage: Stage, relay: Process, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Let it go on wherever it waits, until ``condition``."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        stage.check()
        report = relay.next(0.05)
        if report is not None and report.ticket is not None:
            relay.go(report)
        if report is None and relay.is_over:
            raise LabError(f"{stage.key}: the relay has ended: {relay.exit.how if relay.exit else ''}.")


def rest(stage: Stage, relay: Process, reading: Reading) -> None:
    """Until everything in the outbox is sent; then the relay ends."""
    _let_pass(stage, relay, lambda: reading.waiting() == 0, 40.0)
    if reading.waiting():
        raise LabError(f"{stage.key}: the outbox did not become empty.")
    relay.stop()
