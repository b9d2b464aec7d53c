"""One batch on its way: each message's own delivery report, by its place in the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError
from confluent_kafka import Message as Report

from ...event.message import Message, to_headers
from ...ports import Confirmed, Outcome, Unknown
from .topics import TopicState

HeadersOf = Callable[[Message], list[tuple[str, str]]]

_new_tuple = tuple.__new__


class Failure(NamedTuple):
    """An error: its code decides, the text is for people. ``partition`` -1: the client refused it by itself."""

    code: int
    text: str
    partition: int = -1

    @property
    def is_of_broken_client(self) -> bool:
        """A producer that had broken for good before took it no more: it was not sent."""
        return self.code == KafkaError._FATAL and self.partition < 0


class Flight:
    """Outcomes of a batch, filled in by delivery reports."""

    def __init__(self, messages: Sequence[Message], headers_of: HeadersOf = to_headers) -> None:
        self.messages = messages
        self.headers_of = headers_of
        self.destinations = {message.destination for message in messages}
        self.outcomes: list[Outcome | None] = [None] * len(messages)
        self.failures: dict[int, Failure] = {}
        self.states: dict[str, TopicState] = {}  # what the cluster said about topics, when it had to be asked
        self._refusals: list[Outcome] = []
        self.broken = False  # a fatal error: the producer is of no more use
        self.reported = False  # a message that had been handed over failed

    def start(self, indexes: Iterable[int]) -> None:
        """These are sent now, perhaps again: what they failed with before is of no interest any more."""
        self.reported = False
        if self.failures:
            for index in indexes:
                self.failures.pop(index, None)

    def reporter(self) -> Callable[[int, KafkaError | None, Report], None]:
        """What takes the delivery report of the message at an index. It runs once per message, so it does little."""
        outcomes = self.outcomes

        def report(index: int, error: KafkaError | None, report: Report) -> None:
            if error is None:
                # As Confirmed(partition, offset), without the call of its __new__.
                outcomes[index] = _new_tuple(Confirmed, (report.partition(), report.offset()))
            else:
                self.reported = True
                self.fail(index, error, report.partition())

        return report

    @property
    def is_confirmed(self) -> bool:
        """True when every message was confirmed as it was handed over: nothing is left to be done or judged."""
        return None not in self.outcomes and not self.has_failed and not self._refusals

    @property
    def has_failed(self) -> bool:
        """True when anything but a confirmation has come for a message."""
        return self.broken or self.reported or bool(self.failures)

    @property
    def refused(self) -> bool:
        """True when some messages had their outcome before anything was sent."""
        return bool(self._refusals)

    def unconfirmed(self) -> list[Message]:
        """The messages that the broker has not, for all that is known."""
        return [m for m, one in zip(self.messages, self.outcomes, strict=True) if type(one) is not Confirmed]

    def refuse(self, answers: Mapping[str, Outcome]) -> None:
        """Give the messages for these topics their outcome before anything is sent, or sent again."""
        for index, message in enumerate(self.messages):
            if self.outcomes[index] is None and index not in self.failures:
                self.outcomes[index] = answers.get(message.destination)
        self._refusals = list(answers.values())

    def exceptions(self) -> list[Outcome | None]:
        """The outcomes that are not confirmations, without a look at each message."""
        return [*self._refusals, *(self.outcomes[index] for index in self.failures)]

    def fail(self, index: int, error: KafkaError, partition: int | None = -1) -> None:
        """The message failed with this error, reported or raised."""
        self.failures[index] = Failure(error.code(), error.str(), -1 if partition is None else partition)
        self.broken = self.broken or error.fatal() or error.code() == KafkaError._FATAL

    def unanswered(self) -> list[int]:
        """The messages without an outcome."""
        return [index for index, outcome in enumerate(self.outcomes) if outcome is None]

    def open_topics(self) -> set[str]:
        """The topics of messages that wait for their report."""
        return {self.messages[index].destination for index in self.unanswered() if index not in self.failures}

    def results(self) -> list[Outcome]:
        """One outcome per message."""
        nothing = Unknown("no delivery report came", destination_healthy=False)
        return [nothing if outcome is None else outcome for outcome in self.outcomes]
