"""Publishing to Kafka: all replicas, idempotent, each message's own delivery report."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException

from ...errors import UsedAfterFork
from ...event.cloudevents import to_binary
from ...event.message import Message, to_headers
from ...ports import Outcome, PublisherCapabilities, Rejected, Unavailable, UnderWay, Unknown
from .client import Client, Kind
from .flight import Failure, Flight, HeadersOf
from .line import Begun, Line
from .ordered import OrderedFlight
from .replication import TopicReplication, Watch, observe
from .sending import Ending, await_in_order, send
from .topics import Topics, TopicState
from .url import KafkaUrl, parse_kafka_url
from .verdicts import MISSING, TOO_LARGE, needs_metadata, outcome_of


class KafkaPublisher:
    """Publishes to the topics that destinations name; routing keys mean nothing to Kafka.

    ``deadline`` (seconds) bounds each publish. Whatever has no report by then is purged from the client and its
    producer thrown away, so that nothing is sent later unnoticed. Safe between threads, one publish at a time; not
    across a fork (PB-028).
    """

    capabilities = PublisherCapabilities(scheme="kafka", pipelined_order=True, positions=True, headers=True)

    def __init__(self, url: KafkaUrl, *, deadline: float, client: Client | None = None) -> None:
        self._url = url
        self._deadline = deadline
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._client = client or Client(url)
        self._topics = Topics(self._client)
        self._headers_of = _headers(url.cloudevents)
        self._line = Line(self._client, self._topics)
        self._sending = 0.8 * deadline  # seconds; the rest is for finding out what silence means
        self._closed = False
        self._look_first = False  # the last publish, or the time since, had trouble: ask the cluster before sending

    @classmethod
    def from_url(cls, url: str, *, deadline: float) -> KafkaPublisher:
        """``kafka://host:port,host:port?option=value``; see :func:`.url.parse_kafka_url`."""
        return cls(parse_kafka_url(url, deadline=deadline), deadline=deadline)

    def open(self) -> None:
        """Connect, or raise BadUrl (PB-002), BrokerUnavailable (PB-005) or AccessRefused (PB-008)."""
        with self._lock:
            self._check_process()
            self._closed = False
            self._client.connect(min(5.0, self._deadline / 2))
            self._topics.notice = Watch(self._client.new_admin).notice

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """The same by a producer that leaves no gaps; see :mod:`.ordered`. A stream is a topic and key."""
        wait = self.begin_in_order(messages)
        while (outcomes := wait(self._deadline)) is None:
            pass
        return outcomes

    def begin_in_order(self, messages: Sequence[Message]) -> UnderWay:
        """See ports.BeginsInOrder, and :mod:`.line` for what it takes to be handed over at once."""
        with self._lock:
            self._check_process()
            one = Begun(Flight(messages, self._headers_of), until=time.monotonic() + self._sending)
            if messages:
                if not self._line:
                    self._prepare(one)
                self._line.add(one)
            else:
                one.outcomes = []
        return partial(self._wait, one)

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send all, pipelined; one outcome per message in the same order, within the deadline."""
        if not messages:
            return []
        with self._lock:
            self._check_process()
            while self._line:
                self._end_first()
            started = time.monotonic()
            flight = Flight(messages, self._headers_of)
            self._look_around(flight)
            self._send(flight, flight.unanswered(), until=started + self._sending)
            self._judge(flight, until=started + 0.95 * self._deadline)
            self._look_first = any(map(_is_outage, flight.exceptions()))
            return flight.results()

    def _wait(self, one: Begun, seconds: float) -> list[Outcome] | None:
        with self._lock:
            self._check_process()
            if one.outcomes is None and self._line.first is one and self._line.only_waits(seconds):
                return None
            while one.outcomes is None:
                self._end_first()
            return one.outcomes

    def _end_first(self) -> None:
        """Of the batches under way: do all that is needed, until its deadline, and give it its outcomes."""
        one = self._line.first
        try:
            if not one.flight.is_confirmed:
                self._send_in_order(one)
            self._look_first = any(map(_is_outage, one.flight.exceptions()))
            one.outcomes = one.flight.results()
        finally:
            self._line.end_first(self._sending)

    def replication(self) -> tuple[TopicReplication, ...]:
        """Replicas, ``min.insync.replicas`` and who is in sync now, of every topic that was published to.

        Asks the cluster, beside what is being published. Raises BrokerUnavailable (PB-005).
        """
        self._check_process()
        return observe(self._client, self._topics.names(), seconds=self._deadline)

    def close(self) -> None:
        """Leave. What was begun and is awaited by nobody, or by another thread, is not sent any more: Unknown."""
        if os.getpid() == self._pid:  # a forked child has not the client's threads to end
            self._closed = True
            self._client.close()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork("This Kafka publisher was made in another process (before a fork).")

    def _refuse_in_advance(self, flight: Flight, timeout: float) -> None:
        """A missing topic would otherwise show only by its time-out, and so would a cluster that is away."""
        if self._look_first:
            self._topics.forget_all()
        answers: dict[str, Outcome] = {}
        for name in self._topics.unknown(flight.destinations):
            answer = self._answer_in_advance(name, timeout)
            if answer is not None:
                answers[name] = answer
            if isinstance(answer, Unavailable):
                timeout = min(timeout, 0.1)  # the first topic has waited for the brokers long enough
        if answers:
            flight.refuse(answers)

    def _answer_in_advance(self, name: str, timeout: float) -> Outcome | None:
        if not name:
            return Rejected("the topic's name is empty", permanent=True)
        try:
            state = self._look_up_twice(name, timeout)
        except KafkaException as error:
            return Unavailable(f"Kafka at {self._url.shown} does not answer: {self._client.reason(error)}")
        if state.refused is not None:
            return state.refused
        return (
            Unavailable(state.trouble, broker_answers=True)
            if self._look_first and state.stuck and state.trouble
            else None
        )

    def _look_up_twice(self, name: str, timeout: float) -> TopicState:
        """A question on a connection that was cut meanwhile fails at once; the next one goes over another."""
        until = time.monotonic() + timeout
        try:
            return self._topics.look_up(name, timeout)
        except KafkaException:
            if until - time.monotonic() < timeout / 2:
                raise
            return self._topics.look_up(name, until - time.monotonic())

    def _send_in_order(self, one: Begun) -> None:
        ending: Ending = "sound"
        if one.producer is not None:
            flights = self._line.flights()
            ending = await_in_order(one.producer, flights, until=one.until, hopeless=self._hopeless)
            if ending != "sound":
                self._line.end_epoch()
        elif not (one.prepared or self._closed):
            self._prepare(one)
        if self._closed:
            return
        rest = OrderedFlight(
            self._client, self._topics, one.flight, until=one.until, hopeless=self._hopeless, behind=one.behind
        )
        if ending != "given up":
            rest.run()
        self._judge(one.flight, until=one.until + 0.15 * self._deadline)
        rest.finish()

    def _prepare(self, one: Begun) -> None:
        one.prepared = True
        self._look_around(one.flight)

    def _look_around(self, flight: Flight) -> None:
        self._look_first = self._client.had_trouble() or self._look_first
        self._refuse_in_advance(flight, timeout=min(3.0, self._deadline / 4))

    def _send(self, flight: Flight, indexes: Sequence[int], *, until: float) -> None:
        self._send_with("batch", flight, indexes, until=until)
        suspects = [index for index, failure in flight.failures.items() if failure.code in TOO_LARGE]
        # A record batch is refused as a whole: its small messages are told from the large one by going alone.
        again = [*(suspects if len(suspects) > 1 else ()), *self._larger_than_the_queue(flight)]
        if again:
            flight.start(again)
            self._send_with("alone", flight, sorted(again), until=until)

    def _larger_than_the_queue(self, flight: Flight) -> list[int]:
        most = self._client.queue_bytes // 2
        full = [index for index, failure in flight.failures.items() if failure.code == KafkaError._QUEUE_FULL]
        return [index for index in full if len(flight.messages[index].payload) >= most]

    def _send_with(self, kind: Kind, flight: Flight, indexes: Sequence[int], *, until: float) -> None:
        if not send(self._client.producer(kind), flight, indexes, until=until, hopeless=self._hopeless):
            self._client.discard(kind)

    def _hopeless(self, flight: Flight, silent: bool, seconds: float) -> bool:
        """Does the cluster itself say that waiting is senseless? ``silent``: no report has come for long."""
        names = flight.open_topics()
        try:
            flight.states = {name: self._topics.look_up(name, seconds / max(1, len(names))) for name in names}
        except KafkaException as error:
            flight.states = dict.fromkeys(names, self._no_answer(error))
            # One frozen broker may have been asked, while the others work; but not when all are down, nor for long.
            return silent or self._client.all_down
        return all(state.refused is not None or state.stuck for state in flight.states.values())

    def _judge(self, flight: Flight, *, until: float) -> None:
        for index, failure in flight.failures.items():
            name = flight.messages[index].destination
            if failure.code in MISSING:
                self._topics.forget(name)
            if not needs_metadata(failure.code):
                flight.outcomes[index] = outcome_of(failure.code, failure.text)
                continue
            if name not in flight.states:
                flight.states[name] = self._state(name, until - time.monotonic())
            state = flight.states[name]
            # A topic that does not exist (any more) has not got the message, whatever became of the request.
            flight.outcomes[index] = state.refused or self._open_question(failure, state)

    def _open_question(self, failure: Failure, state: TopicState) -> Outcome:
        if failure.is_of_broken_client:
            return Unavailable(f"the producer had broken: {self._client.broke or failure.text}")
        trouble, answered = state.trouble, state.answered
        outcome = outcome_of(failure.code, failure.text, trouble=trouble, broker_answers=answered)
        if isinstance(outcome, Unknown) and self._client.broke:
            return outcome._replace(reason=f"{outcome.reason}: {self._client.broke}")
        return outcome

    def _state(self, name: str, seconds: float) -> TopicState:
        if seconds < 0.1:
            return TopicState(None, "no time was left to ask the cluster", True, answered=False)
        try:
            return self._topics.look_up(name, min(2.0, seconds))
        except KafkaException as error:
            return self._no_answer(error)

    def _no_answer(self, error: KafkaException) -> TopicState:
        return TopicState(None, f"the cluster does not answer: {self._client.reason(error)}", True, answered=False)


def _headers(source: str | None) -> HeadersOf:
    return to_headers if source is None else lambda message: to_binary(to_headers(message), source)


def _is_outage(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Unavailable) or (isinstance(outcome, Unknown) and not outcome.destination_healthy)
