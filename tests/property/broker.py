"""A broker whose every answer is thrown by dice, and which writes down what arrived."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from pillarbox.event.message import Message
from pillarbox.ports import (
    Confirmed,
    Outcome,
    PublisherCapabilities,
    Rejected,
    Unavailable,
    UnderWay,
    Unknown,
    Withheld,
)
from tests.property.fate import Fate, dead_broker


class Arrival(NamedTuple):
    """One message at the broker, in the order of arrival."""

    relay: str
    message: Message
    offset: int


@dataclass(frozen=True)
class Odds:
    """Chances for each message. ``outage``: that a whole call finds the broker away."""

    retryable: float = 0.0
    permanent: float = 0.0
    unknown: float = 0.0
    away: float = 0.0
    outage: float = 0.0
    slow: float = 0.0


def odds_of(dice: Random) -> Odds:
    """Some relays see a calm broker, some a stormy one."""
    storm = dice.choice((0.0, 1.0, 2.0, 4.0))
    return Odds(
        retryable=0.05 * storm,
        permanent=0.01 * storm,
        unknown=0.04 * storm,
        away=0.02 * storm,
        outage=0.04 * storm,
        slow=0.1 * storm,
    )


class Broker:
    """What arrived, of all relays. ``calm`` ends all trouble, so that a round can end."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.faults: Counter[str] = Counter()
        self.failed: set[tuple[str, str]] = set()  # event id and destination of whatever was not confirmed at once
        self.calm = False
        self._offsets: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, relay: str, message: Message) -> Confirmed:
        """It is in."""
        with self._lock:
            offset = self._offsets[message.destination]
            self._offsets[message.destination] += 1
            self.arrivals.append(Arrival(relay, message, offset))
        return Confirmed(0, offset)

    def fail(self, message: Message) -> None:
        """It was not confirmed at once."""
        self.failed.add((message.event_id, message.destination))

    def calm_down(self) -> None:
        """From now on everything is confirmed."""
        self.calm = True

    def count(self, fault: str) -> None:
        """One more of this kind."""
        with self._lock:
            self.faults[fault] += 1


class DicePublisher:
    """One relay's connection. Gapless: after what was not confirmed, nothing of its stream goes out in the call."""

    capabilities = PublisherCapabilities(scheme="dice", pipelined_order=True, positions=True, headers=True)

    def __init__(self, broker: Broker, fate: Fate, odds: Odds, random: Random) -> None:
        self._broker = broker
        self._fate = fate
        self._odds = odds
        self._random = random
        # Whether rounds have few partitions or many.
        self.capabilities = self.capabilities._replace(one_in_flight=random.random() < 0.5)
        self._under_way: list[set[tuple[str, str]]] = []

    def open(self) -> None:
        """Nothing to connect."""

    def close(self) -> None:
        """Nothing to disconnect."""

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Only order is tested here."""
        raise NotImplementedError

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """See ports.Publisher."""
        if self._hits(self._odds.slow):
            self._broker.count("slow answer")
            time.sleep(self._random.random() * 0.1)
        if self._hits(self._odds.outage):
            self._broker.count("outage")
            return [Unavailable("outage")] * len(messages)
        closed: set[tuple[str, str]] = set()
        outcomes: list[Outcome] = []
        for message in messages:
            if not self._fate.boundary():
                raise dead_broker(self._fate)
            stream = (message.destination, message.key or message.event_id)
            outcome = Withheld("behind") if stream in closed else self._one(message)
            if not isinstance(outcome, Confirmed):
                closed.add(stream)
            if not isinstance(outcome, Confirmed | Withheld):
                self._broker.fail(message)
            outcomes.append(outcome)
        return outcomes

    def begin_in_order(self, messages: Sequence[Message]) -> UnderWay:
        """See ports.BeginsInOrder: all that it may do to a batch, it does while the one before is not awaited."""
        streams = {(message.destination, message.key or message.event_id) for message in messages}
        assert all(streams.isdisjoint(others) for others in self._under_way), "two rounds under way share a stream"
        outcomes = self.publish_in_order(messages)
        self._under_way.append(streams)

        def wait(seconds: float) -> list[Outcome]:
            self._under_way.remove(streams)
            return outcomes

        return wait

    def _one(self, message: Message) -> Outcome:
        odds = self._odds
        if self._hits(odds.retryable):
            self._broker.count("refused for now")
            return Rejected("not now", permanent=False)
        if self._hits(odds.permanent):
            self._broker.count("refused for good")
            return Rejected("never", permanent=True)
        if self._hits(odds.away):
            self._broker.count("destination away")
            return Unavailable("no leader", broker_answers=True)
        if self._hits(odds.unknown):
            return self._unknown(message)
        return self._broker.take(self._fate.name, message)

    def _unknown(self, message: Message) -> Unknown:
        kind = self._random.randrange(4)
        self._broker.count("answer lost, arrived" if kind & 1 else "answer lost, not arrived")
        if kind & 1:
            self._broker.take(self._fate.name, message)
        return Unknown("no answer", destination_healthy=kind < 2)

    def _hits(self, chance: float) -> bool:
        return not self._broker.calm and self._random.random() < chance
