"""The publisher alone, without a database: against the broker's own client, used by hand with the same guarantees.

Both send the same messages, batch by batch, and have every message's confirm before the next batch. They take turns,
each on an exchange with a quorum queue of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from typing import Any, Literal, NamedTuple

from bench import machine
from bench.drain import turns
from bench.places import fresh_broker, server_of, wait_for_arrival
from bench.raw_loop import Row
from bench.raw_rabbitmq import RawRabbitMQ
from pillarbox.event.destination import Topic
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message

WARM_UP = 2_000

Way = Literal["product", "raw"]
Send = Callable[[str, Sequence[Sequence[Message]]], "Spent"]


class Spent(NamedTuple):
    """Seconds on the clock, and of this process's processor: the broker's are not in it."""

    wall: float
    cpu: float


def add_parser(commands: Any) -> None:
    """``python -m bench publish``."""
    parser: argparse.ArgumentParser = commands.add_parser("publish", help="the publisher alone against the raw client")
    parser.add_argument("--broker", choices=("rabbitmq",), default="rabbitmq")
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--payload", type=int, default=300, metavar="BYTES")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """``ratio``: the product's median rate over the raw client's. ``cpu_ratio``: raw over product, per message."""
    ways: dict[Way, Send] = {"product": by_publisher, "raw": by_client}
    spent: dict[Way, list[Spent]] = {"product": [], "raw": []}
    for way, send in ways.items():
        _round(options, send, min(WARM_UP, options.messages))
        spent[way].clear()
    for _, side in turns(options.rounds):
        way: Way = "product" if side == "product" else "raw"
        spent[way].append(_round(options, ways[way], options.messages))
    rate = {way: options.messages / median(one.wall for one in found) for way, found in spent.items()}
    cpu = {way: median(one.cpu for one in found) / options.messages * 1e6 for way, found in spent.items()}
    return {
        "bench": "publish",
        "broker": options.broker,
        "version": server_of(options.broker).version,
        "messages": options.messages,
        "batch": options.batch,
        "rounds": options.rounds,
        "payload_bytes": options.payload,
        "messages_per_second": {way: round(value) for way, value in rate.items()},
        "rates": {way: [round(options.messages / one.wall) for one in found] for way, found in spent.items()},
        "cpu_microseconds_per_message": {way: round(value, 1) for way, value in cpu.items()},
        "ratio": round(rate["product"] / rate["raw"], 3),
        "cpu_ratio": round(cpu["raw"] / cpu["product"], 3),
        "machine": machine.facts(),
    }


def _round(options: argparse.Namespace, send: Send, count: int) -> Spent:
    with fresh_broker(options.broker) as broker:
        payload = b"x" * options.payload
        there = Topic(broker.destination)
        made = [message(there, key=str(number % 1_000), payload=payload) for number in range(count)]
        spent = send(broker.url, [made[at : at + options.batch] for at in range(0, count, options.batch)])
        wait_for_arrival(broker, count)
    return spent


def by_publisher(url: str, batches: Sequence[Sequence[Message]]) -> Spent:
    """As the relay does; RuntimeError if any was not confirmed."""
    with closing(open_publisher(url)) as publisher:

        def send(batch: Sequence[Message]) -> None:
            odd = [one for one in publisher.publish(batch) if not isinstance(one, Confirmed)]
            if odd:
                raise RuntimeError(f"{len(odd)} were not confirmed: {odd[0]}")

        return timed(send, batches)


def by_client(url: str, batches: Sequence[Sequence[Message]]) -> Spent:
    """pika's SelectConnection with confirms, mandatory and persistent, written by hand."""
    with closing(RawRabbitMQ(url)) as client:

        def send(batch: Sequence[Row]) -> None:
            client.start(batch)
            client.finish()

        return timed(send, [[as_row(one) for one in batch] for batch in batches])


def timed(send: Callable[[Any], None], batches: Sequence[Any]) -> Spent:
    """What sending all of them takes, one after the other."""
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        send(batch)
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def as_row(one: Message) -> Row:
    """As the raw loop reads it from the database."""
    moment = one.occurred_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    identity = (one.event_id, one.event_type, one.schema_version, one.aggregate_type, one.aggregate_id, one.key)
    return (0, 0, *identity, moment, one.headers, one.content_type, one.payload, one.destination, one.routing_key)


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = f"{summary['messages']:,} messages to {summary['broker']}, batches of {summary['batch']:,}"
    rates, cpu = summary["messages_per_second"], summary["cpu_microseconds_per_message"]
    lines = [f"{way:8} {rates[way]:>8,} messages/s   {cpu[way]:>6} us of processor each" for way in rates]
    return "\n".join([head, *lines, f"ratio {summary['ratio']:.2f}"])
