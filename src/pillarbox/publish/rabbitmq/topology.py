"""Looking whether an exchange is there before the first message goes to it, and declaring it where that is asked for.

Everything here runs on the connection's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...ports import Outcome, Rejected, Unavailable
from .connection import CorkedConnection
from .refusals import NOT_FOUND, no_such_exchange

log = logging.getLogger("pillarbox.publish.rabbitmq")

RECHECK_SECONDS: Final = 30.0
"""How long an exchange that was found counts as found. One that is deleted meanwhile is noticed by its channel."""

_ACCESS_REFUSED: Final = 403
_MOST_KNOWN: Final = 10_000

Done = Callable[[Outcome | None], None]


class Topology:
    """What one connection knows of its exchanges. ``declare``: the type of the queues to declare, None to declare none.

    Passive by default: a missing exchange is told before anything is sent to it, so that nothing is left unknown. With
    ``declare``, what is missing is made (durable), and what is there is never changed: an exchange of type ``topic``
    and a queue of the same name that gets all of it; for the default exchange the queue that the routing key names.
    """

    def __init__(self, connection: CorkedConnection, declare: str | None) -> None:
        self._connection = connection
        self._declare = declare
        self._found: dict[tuple[str, str], float] = {}  # (exchange, queue) -> when, on the monotonic clock
        self._asked: dict[tuple[str, str], Done] = {}  # of an older batch, a newer one takes its place

    @property
    def declares(self) -> bool:
        """True when missing exchanges and queues are to be made."""
        return self._declare is not None

    def ensure(self, exchange: str, queues: Collection[str], done: Done) -> None:
        """Call ``done`` with None when messages may be sent to ``exchange``, else with their outcome.

        ``queues``: those to look at where the exchange is the default one, which is always there itself.
        Where the connection is lost or the batch given up meanwhile, ``done`` is never called.
        """
        places = [(exchange, exchange)] if exchange else [("", queue) for queue in queues]
        since = time.monotonic() - RECHECK_SECONDS
        self._ensure_each([place for place in places if self._found.get(place, since) <= since], done)

    def _ensure_each(self, missing: list[tuple[str, str]], done: Done) -> None:
        if not missing:
            done(None)
            return
        place, rest = missing[0], missing[1:]

        def next_one(outcome: Outcome | None) -> None:
            if outcome is None:
                self._ensure_each(rest, done)
            else:
                done(outcome)

        asked = place in self._asked
        self._asked[place] = next_one
        if not asked:
            self._look(place)

    def _look(self, place: tuple[str, str]) -> None:
        exchange, queue = place

        def look(channel: Any, answered: Callable[[object], None]) -> None:
            if exchange:
                channel.exchange_declare(exchange, passive=True, callback=answered)
            else:
                channel.queue_declare(queue, passive=True, callback=answered)

        self._ask(place, look, partial(self._not_found, place))

    def _not_found(self, place: tuple[str, str], reason: ChannelClosedByBroker) -> None:
        exchange, queue = place
        if reason.reply_code == _ACCESS_REFUSED:  # who may not look may still be allowed to send
            self._answer(place, None)
        elif reason.reply_code != NOT_FOUND:
            self._answer(place, _refused(place, reason))
        elif self._declare is None:
            self._answer(place, no_such_exchange(exchange))
        else:
            log.info("declaring exchange %r, queue %r (%s): there was none", exchange, queue, self._declare)
            self._ask(place, self._make(place), lambda reason: self._answer(place, _refused(place, reason)))

    def _make(self, place: tuple[str, str]) -> Callable[[Any, Callable[[object], None]], None]:
        exchange, queue = place
        arguments = {"x-queue-type": self._declare}

        # Sent together, so that another relay hardly finds the exchange without its binding. Without a callback pika
        # asks for no answer (nowait); a refusal closes the channel all the same.
        def make(channel: Any, answered: Callable[[object], None]) -> None:
            if not exchange:
                channel.queue_declare(queue, durable=True, arguments=arguments, callback=answered)
                return
            with self._connection.corked():
                channel.queue_declare(queue, durable=True, arguments=arguments)
                channel.exchange_declare(exchange, "topic", durable=True)
                channel.queue_bind(queue, exchange, "#", callback=answered)

        return make

    # Asking ---------------------------------------------------------------------------------------------------------

    def _ask(
        self,
        place: tuple[str, str],
        question: Callable[[Any, Callable[[object], None]], None],
        refused: Callable[[ChannelClosedByBroker], None],
    ) -> None:
        """Ask on a channel of its own, which a refusal closes."""

        def answered(channel: Any, _frame: object) -> None:
            self._answer(place, None)
            if channel.is_open:
                channel.close()

        def closed(_channel: Any, reason: Exception) -> None:
            if isinstance(reason, ChannelClosedByBroker):
                refused(reason)  # else it was closed by us, or the connection is lost: the session settles that

        def opened(channel: Any) -> None:
            channel.add_on_close_callback(closed)
            question(channel, partial(answered, channel))

        try:
            self._connection.channel(on_open_callback=opened)
        except AMQPError as error:  # no free channel number, or the connection is closing
            self._answer(place, Unavailable(f"no channel can be opened: {error!r}"))

    def _answer(self, place: tuple[str, str], outcome: Outcome | None) -> None:
        if outcome is None:
            if len(self._found) >= _MOST_KNOWN:
                self._found.clear()
            self._found[place] = time.monotonic()
        self._asked.pop(place)(outcome)


def _refused(place: tuple[str, str], reason: ChannelClosedByBroker) -> Rejected:
    what = f"exchange {place[0]!r}" if place[0] else f"queue {place[1]!r}"
    return Rejected(
        f"{what} cannot be declared: {reason.reply_text} ({reason.reply_code})", permanent=False, of_destination=True
    )
