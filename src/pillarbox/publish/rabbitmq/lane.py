"""One confirm channel for one exchange, so that a missing exchange closes no other one's channel.

Everything here runs on the connection's thread.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from pika import spec
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...ports import Confirmed, Outcome, Rejected, Unavailable, Unknown
from .batch import Batch
from .connection import CorkedConnection
from .frames import publish_frames
from .ledger import Ledger
from .properties import encoded, routing_key_of
from .refusals import NACKED, NOT_FOUND, no_such_exchange, unencodable, unroutable, verdict_on_close

log = logging.getLogger("pillarbox.publish.rabbitmq")

WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""What may be in flight on one channel. More brings nothing: the broker confirms hundreds at a time."""

CHUNK: Final = 100
"""Messages written before the socket gets its turn, so that the broker works while the next ones are encoded."""

_CONFIRMED: Final = Confirmed()


class Lane:
    """Publishes the messages of one batch at a time to ``exchange``.

    ``may_send`` says whether the broker wants messages now (not while it has blocked the connection).
    """

    _channel: Any
    _ledger: Ledger
    _ready: bool  # the channel is in confirm mode
    _proven: bool  # the exchange has answered on this channel, so it exists
    _refused: bool  # there was a nack on this channel
    _bytes: int  # in flight

    def __init__(self, connection: CorkedConnection, exchange: str, may_send: Callable[[], bool]) -> None:
        self.exchange = exchange
        self._connection = connection
        self._may_send = may_send
        self._batch = Batch([])
        self._waiting: deque[int] = deque()
        self._suspects: deque[int] = deque()  # sent again one by one, to find the one that closed the channel
        self._solo = False  # what is in flight now was sent alone
        self._returned: dict[int, Rejected] = {}
        self._by_address: dict[tuple[str | None, str], deque[int]] = {}
        self._forget_channel()

    def take(self, batch: Batch, indexes: Iterable[int]) -> None:
        """Send these messages of ``batch``. The batch before it is finished or abandoned."""
        if self._refused:
            # RabbitMQ's channel remembers whom it took for a quorum queue's leader when it first published there. Was
            # that node just dead, then this channel is refused for as long as it stays so; a new one asks anew.
            self.close()
        self._batch = batch
        self._waiting = deque(indexes)
        self._by_address.clear()
        self.pump()

    def pump(self) -> None:
        """Send what waits, as far as the window and the broker allow."""
        if not (self._waiting or self._suspects) or not self._may_send():
            return
        if self._channel is None:
            self._open()
        elif self._ready and self._channel.is_open:
            self._send_suspect()
            if not self._solo:
                self._send_waiting()

    def abandon(self, *, sent: Outcome, waiting: Outcome) -> None:
        """Wait no longer: give what is in flight and what was not sent these outcomes.

        A channel with something in flight is closed: a late return could otherwise be taken for the next batch's.
        """
        in_flight = self._ledger.unanswered()
        self._settle_returned(in_flight)
        self._batch.fail(in_flight, sent)
        self._fail_waiting(waiting)
        if in_flight or not self._ready:
            self.close()

    def send_no_more(self, outcome: Outcome) -> None:
        """Give what was never sent this outcome."""
        self._batch.fail(self._waiting, outcome)
        self._waiting.clear()

    def close(self) -> None:
        """Close the channel; the next batch opens another."""
        channel = self._channel
        self._forget_channel()
        if channel is not None and channel.is_open:
            channel.close()

    # Sending ------------------------------------------------------------------------------------------------------

    def _send_suspect(self) -> None:
        while self._suspects and not self._ledger.in_flight:
            self._send(self._suspects.popleft())
            self._solo = True
        self._solo = self._solo and self._ledger.in_flight > 0

    def _send_waiting(self) -> None:
        ledger, waiting = self._ledger, self._waiting
        with self._connection.corked():
            for _ in range(CHUNK):
                if not waiting or ledger.in_flight >= WINDOW_MESSAGES or self._bytes >= WINDOW_BYTES:
                    return
                self._send(waiting.popleft())
        if waiting:
            self._connection.ioloop.add_callback_threadsafe(self.pump)

    def _send(self, index: int) -> None:
        message = self._batch.messages[index]
        try:
            # Nothing is written when the encoding fails, so the broker counts no tag for it.
            frames = publish_frames(
                self._channel.channel_number,
                self.exchange,
                routing_key_of(message),
                encoded(message),
                message.payload,
                self._connection.params.frame_max,
            )
        except (AMQPError, struct.error, ValueError) as error:
            self._batch.fail((index,), unencodable(error))
            return
        self._connection.write(frames)
        self._ledger.sent(index)
        self._bytes += len(message.payload)

    # What the broker says -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            channel = self._connection.channel(on_open_callback=self._on_open)
        except AMQPError as error:  # no free channel number, or the connection is closing
            self._fail_waiting(Unavailable(f"no channel can be opened: {error!r}"))
            return
        self._forget_channel()
        self._channel = channel
        channel.add_on_close_callback(self._on_close)
        channel.add_on_return_callback(self._on_return)

    def _on_open(self, channel: Any) -> None:
        if channel is self._channel:
            channel.confirm_delivery(partial(self._on_answer, channel), callback=partial(self._on_ready, channel))

    def _on_ready(self, channel: Any, _frame: object) -> None:
        if channel is self._channel:
            self._ready = True
            self.pump()

    def _on_answer(self, channel: Any, frame: Any) -> None:
        if channel is not self._channel:
            return
        method = frame.method
        answered = self._ledger.answered(method.delivery_tag, multiple=method.multiple)
        self._settle_returned(answered)
        batch = self._batch
        if isinstance(method, spec.Basic.Ack):
            self._add(batch.confirm(answered, _CONFIRMED))
        else:
            self._refused = True
            batch.fail(answered, NACKED)
        batch.answers += len(answered)
        self._proven = True
        if self._waiting or self._suspects or batch.ordered:  # else nothing is sent any more that bytes could hold up
            self._bytes -= sum(len(batch.messages[index].payload) for index in answered)
            self.pump()
        elif not self._ledger.in_flight:
            self._bytes = 0

    def _on_return(self, channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """An unroutable message comes back before it is confirmed; the return has no tag, only the message itself."""
        if channel is not self._channel:
            return
        if not self._by_address:
            self._note_addresses(self._ledger.unanswered() + list(self._suspects) + list(self._waiting))
        same = self._by_address.get((properties.message_id, method.routing_key))
        if not same:
            log.warning("exchange %r returned message %s, which nobody waits for", self.exchange, properties.message_id)
            return
        index = same.popleft()
        message = self._batch.messages[index]
        self._returned[index] = unroutable(message, method.routing_key, f"{method.reply_code} {method.reply_text}")

    def _on_close(self, channel: Any, reason: Exception) -> None:
        if channel is not self._channel or not isinstance(reason, ChannelClosedByBroker):
            return  # retired by us, or the connection is lost: the session settles that
        in_flight = self._ledger.unanswered()
        proven = self._proven
        self._settle_returned(in_flight)
        in_flight = [index for index in in_flight if not self._batch.has(index)]
        self._forget_channel()
        log.warning("the channel of exchange %r was closed: %s", self.exchange, reason)
        if reason.reply_code == NOT_FOUND:
            self._exchange_is_missing(in_flight, proven=proven)
        elif len(in_flight) > 1:
            self._suspects.extendleft(reversed(in_flight))
        elif in_flight:
            message = self._batch.messages[in_flight[0]]
            self._batch.fail(in_flight, verdict_on_close(reason, message))
        else:  # closed while nothing was in flight: opening it again for ever would help nobody
            self._fail_waiting(Unavailable(f"the channel was closed: {reason}"))
        self.pump()

    def _exchange_is_missing(self, in_flight: list[int], *, proven: bool) -> None:
        missing = no_such_exchange(self.exchange)
        # An exchange that answered before was deleted under us: what was sent just before that may be in a queue.
        gone = Unknown(f"{missing.reason} any more", destination_healthy=True)
        self._batch.fail(in_flight, gone if proven else missing)
        self._fail_waiting(missing)

    def _note_addresses(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            message = self._batch.messages[index]
            address = (message.event_id, routing_key_of(message))
            self._by_address.setdefault(address, deque()).append(index)

    # Accounts -----------------------------------------------------------------------------------------------------

    def _forget_channel(self) -> None:
        self._channel = None
        self._ready = False
        self._proven = False
        self._refused = False
        self._ledger = Ledger()
        self._bytes = 0
        self._solo = False
        self._by_address.clear()

    def _add(self, indexes: Iterable[int]) -> None:
        """What waited for a confirm of its stream may go now."""
        self._waiting.extend(indexes)
        if self._by_address:
            self._note_addresses(indexes)

    def _settle_returned(self, indexes: Iterable[int]) -> None:
        if self._returned:
            for index in indexes:
                outcome = self._returned.pop(index, None)
                if outcome is not None:
                    self._batch.fail((index,), outcome)

    def _fail_waiting(self, outcome: Outcome) -> None:
        self._batch.fail((*self._suspects, *self._waiting), outcome)
        self._suspects.clear()
        self._waiting.clear()
