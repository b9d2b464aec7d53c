"""One call of publish_in_order: epochs of a gapless producer, each ended by its first failure.

With one request in flight and no gaps, nothing of a partition is accepted behind a message that is not there, once the
broker knows the producer (:mod:`.priming`). A message that is refused ends the producer, and with it much that had no
fault of its own: that is sent by the next one, within the same call, except what stands behind the refused message in
its stream.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...event.message import Message
from ...ports import Confirmed, Rejected, Unavailable
from ..streams import NO_TIME, Gate, Name, stream_of
from .client import Client
from .flight import Flight
from .priming import unprimed
from .sending import Hopeless, send, send_in_order
from .topics import Topics
from .verdicts import MISSING, PURGED_IN_FLIGHT, TOO_LARGE, outcome_of


class OrderedFlight:
    """Sends the messages of ``flight`` that have no outcome yet, as far as their streams allow.

    What failed before is sent again, except behind messages of earlier batches (``behind``).

    A refusal for size names its culprit only where it was alone in its batch. A message larger than the topic takes is
    larger than a batch, so it is; for topics that take less than a batch, batches are made smaller until it is.
    """

    def __init__(
        self,
        client: Client,
        topics: Topics,
        flight: Flight,
        *,
        until: float,
        hopeless: Hopeless,
        behind: Sequence[Message] = (),
    ) -> None:
        self._client = client
        self._topics = topics
        self._flight = flight
        self._until = until
        self._hopeless = hopeless
        self._behind = behind
        self._gate = self._closed()
        self._largest = max(len(message.payload) for message in flight.messages)
        # Failed, though another message was to blame; or in an epoch with other batches, from which nothing is learned.
        self._again: set[int] = set(flight.failures)
        for index in [index for index in self._again if self._gate.stops(flight.messages[index])]:
            del flight.failures[index]
        self._again &= flight.failures.keys()
        self._too_large: dict[str, int] = {}  # by topic, the smallest payload that was refused for its size

    def run(self) -> None:
        """Send, until all have their report, the time is over or the broker is in trouble."""
        while time.monotonic() < self._until:
            bulk, suspects = self._split(self._open())
            if bulk:
                self._send(bulk)
            elif suspects:
                self._send_alone(suspects)
            else:
                return
            if not self._learn(alone=not bulk):
                return

    def finish(self) -> None:
        """Give the messages that were not sent their outcome."""
        flight, gate = self._flight, self._closed()
        if not flight.unanswered():
            return
        answers = any(isinstance(outcome, (Confirmed, Rejected)) for outcome in flight.outcomes)
        late = NO_TIME if answers else Unavailable("not sent within the deadline")
        for index, message in enumerate(flight.messages):
            outcome = flight.outcomes[index]
            if outcome is None:
                outcome = flight.outcomes[index] = gate.stops(message) or late
            if not isinstance(outcome, Confirmed):
                gate.close(message)

    def _closed(self) -> Gate:
        gate = Gate()
        for message in self._behind:
            gate.close(message)
        return gate

    # Sending ------------------------------------------------------------------------------------------------------

    def _open(self) -> list[int]:
        """The messages that have no outcome, and no failure of their own."""
        failures, again = self._flight.failures, self._again
        found = self._flight.unanswered()
        return [index for index in found if index not in failures or index in again] if failures else found

    def _split(self, todo: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """What can go pipelined, and what has to go alone once all before it in its stream is there."""
        flight, most, first = self._flight, self._client.queue_bytes // 2, self._unprimed()
        if not (first or self._gate or self._too_large) and self._largest < most:
            return todo, ()
        bulk: list[int] = []
        suspects: list[int] = []
        cut: set[Name] = set()
        flowing: set[Name] = set()  # nothing but their own size can stop these
        for index in todo:
            message = flight.messages[index]
            stream = stream_of(message)
            if stream in cut or (self._gate and self._gate.stops(message)):
                continue
            small = len(message.payload) < self._too_large.get(message.destination, most)
            (bulk if small else suspects).append(index)
            if stream is None or (small and stream in flowing):
                continue
            (flowing if small and self._may_follow(stream, first) else cut).add(stream)
        return bulk, suspects

    def _unprimed(self) -> dict[str, frozenset[int]]:
        return unprimed(self._client.primed, self._topics.partitions, self._flight.destinations)

    def _may_follow(self, stream: Name, unprimed: Mapping[str, frozenset[int]]) -> bool:
        """Whether the next one of the stream may be handed over before this one is confirmed."""
        destination, key = stream
        if destination not in unprimed:
            return True
        return self._client.primed.where(key, self._topics.partitions(destination)) in unprimed[destination]

    def _send(self, indexes: Sequence[int]) -> None:
        flight, producer = self._flight, self._client.producer("ordered")
        unprimed = self._unprimed()
        self._start(indexes)
        if not send_in_order(producer, flight, indexes, self._gate, until=self._until, hopeless=self._hopeless):
            self._client.discard("ordered")
            return
        for index in indexes if unprimed else ():
            outcome = flight.outcomes[index]
            if isinstance(outcome, Confirmed) and outcome.partition is not None:
                self._client.primed.note(flight.messages[index].destination, outcome.partition)

    def _send_alone(self, indexes: Sequence[int]) -> None:
        """One message of each stream: whatever becomes of it, nothing behind it is under way."""
        flight, producer = self._flight, self._client.producer("alone")
        self._start(indexes)
        if not send(producer, flight, indexes, until=self._until, hopeless=self._hopeless):
            self._client.discard("alone")

    def _start(self, indexes: Sequence[int]) -> None:
        self._flight.start(indexes)
        if self._again:
            self._again.difference_update(indexes)

    # Learning from failures ---------------------------------------------------------------------------------------

    def _learn(self, *, alone: bool) -> bool:
        """Settle the failures that name their culprit, and say which others may be sent again. False: give up."""
        flight = self._flight
        fresh = [index for index in flight.failures if index not in self._again]
        if not fresh:
            return True
        culprits, crowded = self._culprits(fresh, alone=alone)
        if not culprits and not (crowded and self._client.make_batches_smaller()):
            return False
        for index in culprits:
            self._refuse(index)
        for index, failure in list(flight.failures.items()):
            message = flight.messages[index]
            if failure.code == PURGED_IN_FLIGHT:  # it may be there, and nobody waits for the answer any more
                self._gate.close(message)
            elif self._gate.stops(message):  # behind the culprit, so it was never sent
                del flight.failures[index]
            else:
                self._again.add(index)
        return True

    def _culprits(self, failed: Sequence[int], *, alone: bool) -> tuple[list[int], bool]:
        """The messages that were refused for what they are, and whether a batch was refused that hides another."""
        flight = self._flight
        batches: dict[tuple[str, int], list[int]] = defaultdict(list)
        culprits = []
        for index in failed:
            failure = flight.failures[index]
            if failure.code in TOO_LARGE and failure.partition >= 0 and not alone:
                batches[flight.messages[index].destination, failure.partition].append(index)
            elif isinstance(outcome_of(failure.code, failure.text), Rejected):
                culprits.append(index)
        culprits += [batch[0] for batch in batches.values() if len(batch) == 1]
        return culprits, any(len(batch) > 1 for batch in batches.values())

    def _refuse(self, index: int) -> None:
        flight, message = self._flight, self._flight.messages[index]
        failure = flight.failures.pop(index)
        flight.outcomes[index] = outcome_of(failure.code, failure.text)
        self._gate.close(message)
        if failure.code in MISSING:
            self._topics.forget(message.destination)
        if failure.code in TOO_LARGE:
            smallest = self._too_large.get(message.destination, len(message.payload))
            self._too_large[message.destination] = min(smallest, len(message.payload))
