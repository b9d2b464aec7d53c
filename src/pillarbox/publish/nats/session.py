"""A publisher's connection: what is sent over it, and what comes back. Everything here runs on its loop's thread."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from ...errors import PillarboxError
from ...ports import Confirmed, Outcome, Rejected, Unavailable, Unknown
from ..subjects import subject_of, why_not
from .connection import FAILURES, Connection, connect, reason_of
from .headers import size_of
from .line import Flight, Line, Place
from .url import NatsUrl
from .verdicts import forbidden, no_leader, no_stream, too_large, verdict
from .writing import headers_of

log = logging.getLogger("pillarbox.publish.nats")

WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""What may be under way. More brings nothing, and what is under way when the connection breaks is unknown."""

NO_RESPONDERS: Final = "503"
_LOOK_AT_MOST: Final = 20


class Sent(NamedTuple):
    """A message on its way."""

    place: Place
    subject: str
    size: int


class Session:
    """One connection at a time, opened when it is needed and lost. ``deadline``: seconds that a flight may take."""

    def __init__(self, url: NatsUrl, *, deadline: float) -> None:
        self._url = url
        self._deadline = deadline
        self._connect_seconds = min(5.0, deadline / (2 * len(url.hosts)))
        self._line = Line()
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._inbox = ""
        self._first = 0
        self._token = 0
        self._under_way: dict[int, Sent] = {}
        self._bytes = 0
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: dict[str, list[Sent]] = {}
        self._sender: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect now, or raise BrokerUnavailable (PB-005) or AccessRefused (PB-008)."""
        await self._connected()

    def begin(self, flight: Flight) -> None:
        """Send the messages of a flight."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._deadline * 0.7, self._late, flight)
        loop.call_later(self._deadline, self._expire, flight)
        self._line.begin(flight)
        if self._sender is None or self._sender.done():
            self._sender = self._spawn(self._send_all())
        self._wake.set()

    async def close(self) -> None:
        """Say goodbye; what is under way is unknown."""
        if self._sender is not None:
            self._sender.cancel()
        self._give_up("the publisher was closed")
        self._fail_all(Unavailable("the publisher was closed"))
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.farewell()

    # Sending ----------------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        me = asyncio.current_task()
        while self._sender is me:  # the client may swallow a cancellation
            await self._wake.wait()
            self._wake.clear()
            while self._sender is me and self._has_room and (place := self._line.next_one()) is not None:
                try:
                    await self._send(place)
                except asyncio.CancelledError:
                    self._line.fail(place, Unavailable("not sent: the connection was lost"))
                    raise

    @property
    def _has_room(self) -> bool:
        return len(self._under_way) < WINDOW_MESSAGES and self._bytes < WINDOW_BYTES

    async def _send(self, place: Place) -> None:
        message = place.message
        subject = subject_of(message)
        flaw = why_not(subject)
        if flaw is not None:
            self._line.fail(place, Rejected(flaw, permanent=True))
            return
        try:
            connection = await self._connected()
        except PillarboxError as error:
            self._fail_all(Unavailable(error.message))  # nothing is on the wire, and each would wait for a connection
            return
        if place.flight.outcomes[place.at] is not None:
            return  # its time was over meanwhile
        headers = headers_of(message, subject, self._url)
        size = size_of(headers) + len(message.payload)
        if size > connection.max_payload:
            self._line.fail(place, too_large(size, connection.max_payload))
            return
        await self._publish(connection, Sent(place, subject, size), headers)

    async def _publish(self, connection: Connection, sent: Sent, headers: dict[str, str]) -> None:
        self._token += 1
        token = self._token
        self._under_way[token] = sent
        self._bytes += sent.size
        payload, reply = sent.place.message.payload, f"{self._inbox}{token}"
        try:
            await connection.publish(sent.subject, payload, reply=reply, headers=headers)
        except (nats.errors.BadSubjectError, nats.errors.BadHeaderError) as error:
            self._answered(token, Rejected(f"cannot be written: {reason_of(error)}", permanent=True))
        except FAILURES as error:  # raised before anything of it is written
            self._answered(token, Unavailable(f"not sent: {reason_of(error)}"))
            self._drop(connection, reason_of(error))

    # Answers ----------------------------------------------------------------------------------------------------------

    async def _on_answer(self, answer: Msg) -> None:
        token = int(answer.subject.rpartition(".")[2])
        sent = self._under_way.get(token)
        if sent is None:
            return  # it came too late, and its outcome is given
        if answer.headers and answer.headers.get("Status") == NO_RESPONDERS:
            self._forget(token)
            self._look_for(sent)
            return
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = {}
        sent.place.flight.answers += 1
        self._answered(token, verdict(found, sent.subject))

    def _answered(self, token: int, outcome: Outcome) -> None:
        sent = self._forget(token)
        if sent is not None:
            self._give(sent, outcome)

    def _give(self, sent: Sent, outcome: Outcome) -> None:
        if isinstance(outcome, Confirmed):
            self._line.confirm(sent.place, outcome)
        else:
            self._line.fail(sent.place, outcome)
        self._wake.set()

    def _forget(self, token: int) -> Sent | None:
        sent = self._under_way.pop(token, None)
        if sent is not None:
            self._bytes -= sent.size
            self._wake.set()
        return sent

    def _on_violation(self, text: str) -> None:
        """The server says so beside the answers, which then never come, and the client writes it in small letters."""
        for token, sent in list(self._under_way.items()):
            if f'"{sent.subject.lower()}"' in text:
                self._answered(token, forbidden(text))

    # A subject that nobody answers for --------------------------------------------------------------------------------

    def _look_for(self, sent: Sent) -> None:
        waiting = self._looking.setdefault(sent.subject, [])
        waiting.append(sent)
        if len(waiting) == 1:
            self._spawn(self._look(sent.subject))

    async def _look(self, subject: str) -> None:
        outcome = await self._why_nobody_answers(subject)
        for sent in self._looking.pop(subject, []):
            sent.place.flight.answers += 1
            self._give(sent, outcome)

    async def _why_nobody_answers(self, subject: str) -> Outcome:
        connection = self._connection
        if connection is None:
            return Unavailable("the connection was lost")
        try:
            found = await connection.ask("STREAM.NAMES", {"subject": subject}, min(2.0, self._deadline / 4))
        except PillarboxError as error:
            return Unavailable(error.message, broker_answers=not connection.ended.is_set())
        return no_leader(subject) if found.get("streams") else no_stream(subject)

    # Time -------------------------------------------------------------------------------------------------------------

    def _late(self, flight: Flight) -> None:
        if flight.left == 0:
            return
        if flight.ordered and flight.answers:  # a long queue of one key may need more, though each is answered at once
            self._line.send_no_more(flight)
        self._spawn(self._doubt(flight))

    async def _doubt(self, flight: Flight) -> None:
        """No answers: because nothing answers any more, or because plain subscribers took what no stream keeps?"""
        connection = self._connection
        if connection is None:
            return
        try:
            async with asyncio.timeout(self._deadline * 0.2):
                await connection.flush()
                silent = {sent.subject for sent in self._under_way.values() if sent.place.flight is flight}
                for subject in sorted(silent)[:_LOOK_AT_MOST]:
                    outcome = await self._why_nobody_answers(subject)
                    if isinstance(outcome, Rejected):
                        self._fail_under_way(flight, outcome, subject)
        except FAILURES as error:
            self._drop(connection, f"no answer: {reason_of(error)}")

    def _expire(self, flight: Flight) -> None:
        if flight.left == 0:
            return
        late = f"no acknowledgement within {self._deadline:g} s"
        answers = self._connection is not None  # else the doubt has cut it
        self._fail_under_way(flight, Unknown(late, destination_healthy=False, broker_answers=answers))
        self._line.fail_rest(flight, Unavailable(f"not sent within {self._deadline:g} s"))
        self._wake.set()

    def _fail_under_way(self, flight: Flight, outcome: Outcome, subject: str | None = None) -> None:
        for token, sent in list(self._under_way.items()):
            if sent.place.flight is flight and subject in (None, sent.subject):
                self._answered(token, outcome)

    def _fail_all(self, outcome: Outcome) -> None:
        for flight in list(self._line.flights):
            self._line.fail_rest(flight, outcome)

    # The connection ---------------------------------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        async with self._connecting:
            connection = self._connection
            if connection is not None and not connection.ended.is_set():
                return connection
            if connection is not None:
                self._drop(connection, reason_of(connection.failure or OSError("the connection was lost")))
            connection = await connect(
                self._url,
                "pillarbox relay",
                first=self._first,
                seconds=self._connect_seconds,
                on_violation=self._on_violation,
            )
            self._inbox = f"{connection.new_inbox()}."
            await connection.subscribe(f"{self._inbox}*", cb=self._on_answer)
            self._connection = connection
            self._spawn(self._watch(connection))
            return connection

    async def _watch(self, connection: Connection) -> None:
        await connection.ended.wait()
        self._drop(connection, reason_of(connection.failure or OSError("the server closed it")))

    def _drop(self, connection: Connection, why: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._first += 1  # another server of the cluster may be there
        connection.abort()
        log.warning("NATS at %s: the connection was lost: %s", self._url.shown, why)
        self._give_up(f"the connection was lost: {why}")
        if self._sender is not None and self._sender is not asyncio.current_task():
            # The client waits without an end for a line that takes no more to take something.
            self._sender.cancel()
            self._sender = self._spawn(self._send_all())

    def _give_up(self, text: str) -> None:
        """What is under way is unknown; what was not sent stays in the line, for the next connection."""
        sent, self._under_way, self._bytes = list(self._under_way.values()), {}, 0
        for one in sent:
            self._line.fail(one.place, Unknown(text, destination_healthy=False))
        self._wake.set()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                log.error("NATS at %s: %r", self._url.shown, error, exc_info=error)
