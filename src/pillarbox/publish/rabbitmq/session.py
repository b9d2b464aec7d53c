"""The connection to RabbitMQ, and the thread that it lives on. Heartbeats go on while nothing is published."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError

from ...ports import Outcome, Unavailable, Unknown
from ..streams import NO_TIME
from .batch import Batch
from .connection import CorkedConnection
from .lane import Lane
from .properties import routing_key_of
from .refusals import reason_of
from .topology import Topology
from .url import RabbitUrl

log = logging.getLogger("pillarbox.publish.rabbitmq")

MAX_LANES: Final = 100
"""Channels kept open; a relay with more exchanges opens the others as needed."""

Opened = Callable[[BaseException | None], None]


class Session:
    """One connection at a time, opened when it is needed and lost. One batch at a time.

    ``deadline``: seconds after which a batch is abandoned. ``patience``: seconds to wait for a broker that has blocked
    the connection (memory or disk alarm). All methods with an underscore run on the session's own thread.
    """

    def __init__(self, url: RabbitUrl, *, deadline: float, patience: float) -> None:
        self._url = url
        self._deadline = deadline
        self._patience = patience
        self._ioloop = IOLoop()
        self._thread = threading.Thread(target=self._run, name="pillarbox-rabbitmq", daemon=True)
        self._connection: Any = None
        self._connecting = False
        self._node = 0
        self._waiters: list[Opened] = []
        self._lanes: dict[str, Lane] = {}
        self._topology: Any = None  # of the open connection
        self._batch = Batch([])
        self._blocked: str | None = None
        self._node_answers = False
        self._timers: list[object] = []
        self._thread.start()

    # Called by other threads --------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """False when the thread has ended; the session is then of no more use."""
        return self._thread.is_alive()

    def connect(self, opened: Opened) -> None:
        """Connect where needed and call ``opened`` on the session's thread, with the error or None."""
        self._ioloop.add_callback_threadsafe(partial(self._when_open, opened))

    def submit(self, batch: Batch) -> None:
        """Publish the batch. One hand-over for all of its messages."""
        self._ioloop.add_callback_threadsafe(partial(self._begin, batch))

    def stop(self, seconds: float) -> None:
        """Close the connection in order if the broker lets us within ``seconds``, then end the thread."""
        if self.alive:
            self._ioloop.add_callback_threadsafe(partial(self._close, seconds))
            self._thread.join(seconds + 1.0)

    # A batch --------------------------------------------------------------------------------------------------------

    def _begin(self, batch: Batch) -> None:
        if not self._batch.finished:
            self._expire()
        self._clear_timers()
        self._batch = batch
        self._node_answers = False
        self._later(self._deadline, self._expire)
        self._later(self._deadline * 0.8, self._ask_node)
        if batch.ordered:
            self._later(self._deadline * 0.7, self._enough)
        if self._blocked is not None:
            self._later(self._patience, self._give_up_blocked)
        self._when_open(partial(self._dispatch, batch))

    def _dispatch(self, batch: Batch, error: BaseException | None) -> None:
        if batch.finished:
            return
        if error is not None:
            batch.fail_rest(Unavailable(f"RabbitMQ at {self._url.shown}: {reason_of(error)}"))
            return
        while len(self._lanes) > max(MAX_LANES, len(batch.messages)):
            self._lanes.pop(next(iter(self._lanes))).close()
        topology = self._topology
        for exchange, indexes in batch.ready().items():
            queues = _queues_of(batch) if topology.declares and not exchange else ()
            topology.ensure(exchange, queues, partial(self._send, batch, exchange, indexes))

    def _send(self, batch: Batch, exchange: str, indexes: list[int], missing: Outcome | None) -> None:
        if batch is not self._batch or batch.finished:
            return  # given up while the broker was asked for the exchange
        if missing is not None:
            batch.fail(indexes, missing)
            return
        lane = self._lanes.pop(exchange, None) or Lane(self._connection, exchange, self._may_send)
        self._lanes[exchange] = lane  # the last used are last
        lane.take(batch, indexes)

    def _enough(self) -> None:
        """A long queue of one key may need more than the deadline, though each message is confirmed at once."""
        batch = self._batch
        if batch.answers:
            batch.send_no_more(NO_TIME)
            for lane in self._lanes.values():
                lane.send_no_more(NO_TIME)

    def _expire(self) -> None:
        """The deadline is over: nothing may be taken for this batch's confirm any more."""
        batch = self._batch
        if batch.finished:
            return
        late = f"no confirm within {self._deadline:g} s"
        # The node answers and it confirmed others: then it is this queue that does not, and the rest may go on.
        healthy = self._node_answers and batch.answers > 0
        self._abandon(Unknown(late, destination_healthy=healthy), Unavailable(f"not sent within {self._deadline:g} s"))
        if not healthy and self._blocked is None:
            self._drop(late)

    def _abandon(self, sent: Unknown, waiting: Unavailable) -> None:
        for lane in self._lanes.values():
            lane.abandon(sent=sent, waiting=waiting)
        self._batch.fail_rest(waiting)

    def _ask_node(self) -> None:
        """Near the deadline: does the node answer at all? A new channel is the cheapest question that AMQP has."""
        connection = self._connection
        if connection is None or not connection.is_open or self._batch.finished or self._blocked is not None:
            return
        try:
            connection.channel(on_open_callback=self._on_node_answer)
        except AMQPError:
            log.debug("no channel to ask the node with", exc_info=True)

    def _on_node_answer(self, channel: Any) -> None:
        self._node_answers = True
        if channel.is_open:
            channel.close()

    # Blocked by a memory or disk alarm ------------------------------------------------------------------------------

    def _may_send(self) -> bool:
        return self._blocked is None

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        if connection is self._connection:
            self._blocked = str(frame.method.reason)
            log.warning("RabbitMQ accepts no messages now: %s", self._blocked)
            self._later(self._patience, self._give_up_blocked)

    def _on_unblocked(self, connection: Any, _frame: object) -> None:
        if connection is self._connection:
            self._blocked = None
            log.info("RabbitMQ accepts messages again")
            for lane in self._lanes.values():
                lane.pump()

    def _give_up_blocked(self) -> None:
        if self._blocked is not None and not self._batch.finished:
            reason = f"RabbitMQ accepts no messages now: {self._blocked}"
            self._abandon(Unknown(reason, destination_healthy=False), Unavailable(reason))

    # The connection -------------------------------------------------------------------------------------------------

    def _when_open(self, opened: Opened) -> None:
        if self._connection is not None and self._connection.is_open:
            opened(None)
            return
        self._waiters.append(opened)
        if not self._connecting:
            self._connecting = True
            self._try_node(len(self._url.nodes))

    def _try_node(self, left: int) -> None:
        parameters = self._url.nodes[self._node % len(self._url.nodes)]
        self._connection = CorkedConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=partial(self._on_open_error, left - 1),
            on_close_callback=self._on_close,
            custom_ioloop=self._ioloop,
        )

    def _on_open(self, connection: Any) -> None:
        self._connection = connection  # a batch that was given up in the meantime has forgotten it
        self._topology = Topology(connection, self._url.declare)
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._connecting = False
        self._tell_waiters(None)

    def _on_open_error(self, left: int, _connection: object, error: BaseException) -> None:
        self._connection = None
        self._node += 1  # another node of the cluster may be there
        if left > 0:
            self._try_node(left)
            return
        self._connecting = False
        self._tell_waiters(error)

    def _tell_waiters(self, error: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        for opened in waiters:
            opened(error)

    def _on_close(self, connection: Any, reason: BaseException) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._node += 1
        text = f"the connection was lost: {reason_of(reason)}"
        log.warning("RabbitMQ at %s: %s", self._url.shown, text)
        self._abandon(Unknown(text, destination_healthy=False), Unavailable(text))
        self._lanes.clear()
        self._blocked = None

    def _drop(self, why: str) -> None:
        """Cut the connection without a farewell, which a frozen node would never answer."""
        connection, self._connection = self._connection, None
        self._lanes.clear()
        self._blocked = None
        self._node += 1
        if connection is not None and connection.is_open:
            log.warning("RabbitMQ at %s: connection given up: %s", self._url.shown, why)
            # pika has no public way to close without waiting for the peer.
            connection._terminate_stream(AMQPError(why))

    def _close(self, seconds: float) -> None:
        self._batch.fail_rest(Unavailable("the publisher was closed"))
        self._clear_timers()
        connection = self._connection
        if connection is None or not connection.is_open:
            self._ioloop.stop()
            return
        self._connection = None
        connection.add_on_close_callback(lambda *_: self._ioloop.stop())
        connection.close()
        self._later(seconds, self._ioloop.stop)

    # The thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._ioloop.start()
        except Exception as error:  # noqa: BLE001 - pika raises here when a reset follows a connect at once
            log.warning("RabbitMQ at %s: the connection's thread ends, another one follows: %r", self._url.shown, error)
        finally:
            self._batch.fail_rest(Unknown("the connection's thread has ended", destination_healthy=False))
            self._tell_waiters(ConnectionError("the connection's thread has ended"))
            self._ioloop.close()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._ioloop.call_later(seconds, callback))

    def _clear_timers(self) -> None:
        for timer in self._timers:
            self._ioloop.remove_timeout(timer)
        self._timers.clear()


def _queues_of(batch: Batch) -> set[str]:
    """The queues that its messages for the default exchange go to."""
    return {routing_key_of(message) for message in batch.messages if not message.destination}
