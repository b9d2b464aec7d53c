"""One call outside: begun and committed, made, and its answer committed, each in a transaction of its own."""

from __future__ import annotations

import inspect
import json
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from .. import faultpoints
from ..errors import ConfigError, DatabaseBusy, EffectInDoubt, EffectPending, PillarboxError
from ..errors import EffectNotDone as NotDone
from ..errors import EffectRefused as Refused
from ..event.codec import encode
from ..event.limits import check_name
from ..store import effects as table
from ..store.effects import EffectKey, Record
from ..store.engines import relay_engine
from ..store.transactions import Transactions
from .doubt import ASK, Ask, InDoubt, Lookup, check_in_doubt, is_believed
from .identity import MAX_NAME, AnyEvent, effect_of
from .steps import Steps

log = logging.getLogger("pillarbox.effects")

T = TypeVar("T")


class Effects:
    """What the consumer called ``consumer`` does outside of its database.

    ``database`` is the inbox's: an Engine, of which it uses a connection beside the handler's, or a URL. On SQLite it
    must be a file of its own, made by ``pillarbox init --part inbox``: the handler's transaction holds the only write
    lock of its file.

        effects = Effects("billing", engine)

        @consumer.on(OrderPlaced)
        def pay(event: Received[OrderPlaced], session: Session) -> None:
            receipt = effects.call(event, "charge", lambda key: bank.charge(17, key), in_doubt=SAME_KEY)
            session.add(Payment(order=…, receipt=receipt["id"]))

    Its threads may share one.
    """

    def __init__(self, consumer: str, database: Engine | str) -> None:
        self.consumer = check_name("consumer name", consumer, most=MAX_NAME)
        engine = relay_engine(database) if isinstance(database, str) else database
        if engine.dialect.name != "sqlite":
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        self._sqlite = engine.dialect.name == "sqlite"
        self._tables = Transactions(engine)

    def call(
        self,
        event: AnyEvent,
        step: str,
        function: Callable[[str], object],
        *,
        in_doubt: InDoubt = ASK,
        not_done: tuple[type[Exception], ...] = (),
        tries: int | None = None,
    ) -> Any:
        """Call ``function(idempotency key)`` unless its answer is known; returns the answer as plain JSON types.

        ``event`` is what the handler got, or the event's id; ``step`` names this call among those of the event. The key
        is the same at every delivery. The answer must be JSON; it is kept, and given back when the event comes again.

        How ``function`` says that it was not done: by raising NotDone, or an error of a type in ``not_done`` (a refused
        connection, say). Then a later delivery calls it again, ``tries`` times at most (None: without an end), and
        after that it counts as refused. By raising Refused: it was not done, and never will be. Any other error means
        that nobody knows, and so does a process that dies: the next delivery does what ``in_doubt`` says (SAME_KEY,
        Lookup, ASK).

        Raises what ``function`` raises; Refused (PB-046), again at every delivery; EffectInDoubt (PB-044), for a person
        to decide; EffectPending (PB-052), for the next delivery to look again. Our consumers set an event aside for the
        first two and wait for the third, unless their ``on_error`` says otherwise. ConfigError (PB-001), before
        anything is called, for an ``async def`` function or another ``in_doubt``; what :class:`.Transactions` raises.
        """
        return self.run(effect_of(self.consumer, event, step), function, in_doubt, not_done=not_done, tries=tries)

    def steps(self, event: AnyEvent) -> Steps:
        """Several calls of which the earlier ones are undone when a later one is refused; see :class:`.Steps`."""
        return Steps(self, event)

    # One effect -------------------------------------------------------------------------------------------------------

    def run(
        self,
        effect: EffectKey,
        function: Callable[[str], object],
        in_doubt: InDoubt,
        *,
        not_done: tuple[type[Exception], ...] = (),
        tries: int | None = None,
    ) -> Any:
        """:meth:`call`, for an effect that has its name."""
        check_in_doubt(in_doubt)
        _check_function(function, effect.step)
        faultpoints.reach("effect.before-start")
        claim = secrets.token_hex(16)
        known = self._begin(effect, claim, in_doubt)
        if known is not None:
            return _told(effect, known)
        faultpoints.reach("effect.started")
        nothing_happened: tuple[type[Exception], ...] = (NotDone, *not_done)
        try:
            answer = function(effect.id)
        except Refused as refusal:
            return _told(effect, self.settle(effect, refusal=refusal.message))
        except nothing_happened as error:
            self._not_done(effect, claim, error, tries)
            raise
        except Exception as error:
            self._leave(effect, claim, "unknown", error)
            raise
        faultpoints.reach("effect.called")
        try:
            text = encode(answer, event_type=effect.step).decode()
        except PillarboxError as error:
            self._leave(effect, claim, "unknown", error)
            raise
        found = self.settle(effect, answer=text)
        faultpoints.reach("effect.done")
        return _told(effect, found)

    def known(self, effect: EffectKey) -> Record | None:
        """What is recorded of it."""
        return self._read(partial(table.find, effect_id=effect.id))

    def settle(self, effect: EffectKey, *, answer: str | None = None, refusal: str | None = None) -> Record:
        """Record the outcome of an effect that was begun."""
        found = self._write(partial(table.settle, effect_id=effect.id, answer=answer, refusal=refusal))
        if (found.answer, found.refusal) != (answer, refusal):
            log.warning("effect %s (%s) was settled by somebody else meanwhile; that stands", effect.id, effect.step)
        return found

    def declare(self, effect: EffectKey, *, refusal: str) -> None:
        """Record an outcome without a call."""
        self._write(partial(table.declare, effect=effect, claim=secrets.token_hex(16), refusal=refusal))

    # Begin, and what was begun before ---------------------------------------------------------------------------------

    def _begin(self, effect: EffectKey, claim: str, in_doubt: InDoubt) -> Record | None:
        """None: it is this attempt's to call. Else its recorded outcome."""
        there = self._write(partial(table.begin, effect=effect, claim=claim))
        if there is None or there.state == "done":
            return there
        if there.state != "not_done":
            found = self._resolved(effect, there, in_doubt)
            if found is not None:
                return found
        if self._write(partial(table.take_over, effect_id=effect.id, had=there.claim, claim=claim)):
            return None
        raise EffectPending(f"The step {effect.step!r} of event {effect.event_id} is being worked on elsewhere.")

    def _resolved(self, effect: EffectKey, there: Record, in_doubt: InDoubt) -> Record | None:
        """None: call again."""
        if isinstance(in_doubt, Ask):
            self._leave(effect, there.claim, "unknown", there.error or "its process died, or was interrupted")
            raise EffectInDoubt(
                f"Whether the step {effect.step!r} of event {effect.event_id} was done is not known.",
                fix=f"Find out, then `pillarbox effects resolve {effect.id}`, and let the event come again.",
            )
        if not isinstance(in_doubt, Lookup):
            return None
        found = in_doubt.find(effect.id)
        if found is not None:
            return self.settle(effect, answer=encode(found, event_type=effect.step).decode())
        if not is_believed(there.age, in_doubt.wait):
            raise EffectPending(
                f"The step {effect.step!r} of event {effect.event_id} was begun {there.age:.1f} s ago and is not there "
                f"yet; that it never will be is believed after {in_doubt.wait:g} s.",
                seconds=in_doubt.wait - there.age,
            )
        return None

    def _not_done(self, effect: EffectKey, claim: str, error: Exception, tries: int | None) -> None:
        there = self.known(effect)
        if tries is not None and there is not None and there.claim == claim and there.attempts >= tries:
            reason = f"not done in {there.attempts} attempts: {_line(error)}"
            self.settle(effect, refusal=reason)
            raise Refused(reason) from error
        self._leave(effect, claim, "not_done", error)

    def _leave(self, effect: EffectKey, claim: str, state: table.State, error: Exception | str) -> None:
        text = error if isinstance(error, str) else _line(error)
        try:
            self._write(partial(table.leave, effect_id=effect.id, claim=claim, state=state, error=text))
        except PillarboxError as failure:  # it stays "started", which is in doubt as well
            log.error("how effect %s (%s) ended could not be recorded: %s", effect.id, effect.step, failure)

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._tables.read(work)

    def _write(self, work: Callable[[Connection], T]) -> T:
        try:
            return self._tables.write(work)
        except DatabaseBusy as error:
            if not self._sqlite:
                raise
            raise ConfigError(
                "The file of the effects is locked, by the handler's own transaction it seems: SQLite has one writer.",
                fix="Give Effects a SQLite file of its own (`pillarbox init --part inbox`).",
            ) from error


def _told(effect: EffectKey, found: Record) -> Any:
    if found.refusal is not None:
        raise Refused(found.refusal)
    return None if found.answer is None else json.loads(found.answer)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _check_function(function: object, step: str) -> None:
    """Refuse what cannot be the call, while nothing is in doubt yet."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        what = "is async: it would never run" if callable(function) else "has no function"
        raise ConfigError(
            f"The step {step!r} {what}.",
            fix="Give a plain function of the key; in an async handler, await asyncio.to_thread(effects.call, …).",
        )
    try:
        inspect.signature(function).bind("key")
    except TypeError as error:
        raise ConfigError(
            f"The function of step {step!r} cannot be called with the key: {error}.", fix="Write lambda key: …"
        ) from error
    except ValueError:  # written in C, and says nothing of its parameters
        return
