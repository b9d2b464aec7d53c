"""Several effects for one event, of which the earlier are undone when a later one is given up: a small saga."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import EffectNotDone as NotDone
from ..errors import EffectRefused as Refused
from .doubt import ASK, InDoubt, Lookup
from .identity import OURS, AnyEvent, effect_of

if TYPE_CHECKING:
    from .calling import Effects

log = logging.getLogger("pillarbox.effects")

_GIVEN_UP: Final = f"{OURS}given-up"
_UNDO: Final = f"{OURS}undo "

Undo = Callable[[str, Any], object]
"""``undo(idempotency key of its own, answer of the step)``."""


class _Done(NamedTuple):
    step: str
    answer: Any
    undo: Undo
    in_doubt: InDoubt


class Steps:
    """Calls that belong together. When one is refused, those before it are undone, the last one first.

        try:
            with effects.steps(event) as steps:
                steps.call("charge", charge, undo=lambda key, answer: bank.refund(answer["id"], key))
                steps.call("ship", lambda key: carrier.book(address, key))
        except Refused as why:                     # the charge is taken back
            outbox.add(session, Event(OrderRejected(str(why)), …))

    That it was given up is recorded before the first undo, and each undo is an effect of its own, with its own key and
    its own record: a process that dies in the middle goes on where it was, and a step that would succeed by now is not
    called again. Raise Refused yourself, within the block, to give up for a reason of your own.

    Other errors undo nothing: the event comes again, and steps that are done give the answer they gave. Nor does a step
    in doubt: whether to undo is not known before that is.
    """

    def __init__(self, effects: Effects, event: AnyEvent) -> None:
        self._effects = effects
        self._event = event
        self._done: list[_Done] = []
        self._given_up: str | None = None

    def __enter__(self) -> Steps:
        found = self._effects.known(effect_of(self._effects.consumer, self._event, _GIVEN_UP, ours=True))
        self._given_up = None if found is None else found.refusal
        return self

    def call(
        self,
        step: str,
        function: Callable[[str], object],
        *,
        undo: Undo | None = None,
        in_doubt: InDoubt = ASK,
        undo_in_doubt: InDoubt | None = None,
        not_done: tuple[type[Exception], ...] = (),
        tries: int | None = None,
    ) -> Any:
        """:meth:`.Effects.call`, with ``undo`` to take it back. ``undo_in_doubt`` None: as ``in_doubt``, but ASK where
        that is a Lookup, which looks for another thing.

        An undo that fails is in doubt like any call; one that raises NotDone is tried again at the next delivery. One
        that raises Refused is in doubt, too: a person must see to it.
        """
        effect = effect_of(self._effects.consumer, self._event, step)
        if self._given_up is not None and not self._was_done(step):
            raise Refused(self._given_up)
        answer = self._effects.run(effect, function, in_doubt, not_done=not_done, tries=tries)
        if undo is not None:
            own = undo_in_doubt or (ASK if isinstance(in_doubt, Lookup) else in_doubt)
            self._done.append(_Done(step, answer, undo, own))
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Refused):
            self._give_up(self._given_up or error.message)
        elif error is None and self._given_up is not None:
            self._give_up(self._given_up)
            raise Refused(self._given_up)

    def _give_up(self, reason: str) -> None:
        given_up = effect_of(self._effects.consumer, self._event, _GIVEN_UP, ours=True)
        self._effects.declare(given_up, refusal=reason)
        for one in reversed(self._done):
            effect = effect_of(self._effects.consumer, self._event, _UNDO + one.step, ours=True)
            self._effects.run(effect, _undoing(one), one.in_doubt, not_done=(NotDone,))
            log.info("step %r of event %s is undone: %s", one.step, effect.event_id, reason)

    def _was_done(self, step: str) -> bool:
        found = self._effects.known(effect_of(self._effects.consumer, self._event, step))
        return found is not None and found.state == "done" and found.refusal is None


def _undoing(one: _Done) -> Callable[[str], object]:
    def undo(key: str) -> object:
        try:
            return one.undo(key, one.answer)
        except Refused as error:
            raise RuntimeError(f"the undo of {one.step!r} was refused: {error.message}") from error

    return undo
