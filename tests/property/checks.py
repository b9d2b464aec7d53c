"""What must be true when a round has ended."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from random import Random

from sqlalchemy import Engine

from pillarbox.inbox import Inbox
from tests.property.broker import Arrival, Broker
from tests.property.worlds import Rows


def unfinished(rows: Rows) -> list[str]:
    """What still has to happen: nothing may be ready or waiting, but behind what was given up."""
    found = [f"{number} is ready" for number in sorted(rows.ready)]
    dead_streams = {rows.stream(*key) for key, state in rows.parked.items() if state == "DEAD"}
    for key, state in sorted(rows.parked.items()):
        stream = rows.stream(*key)
        if state == "DEAD" or (state == "HELD" and rows.holds.get(stream) == "dead"):
            continue
        found.append(f"{key} is {state} ({rows.errors[key]}), hold {rows.holds.get(stream)}")
    found += [f"hold {stream} {mode}" for stream, mode in rows.holds.items() if mode != "dead"]
    found += [
        f"hold {s} has no dead head" for s, mode in rows.holds.items() if mode == "dead" and s not in dead_streams
    ]
    return found


def wrong(rows: Rows, broker: Broker, withdrawn: Collection[str], *, skips: bool) -> Iterator[str]:
    """Everything that is wrong."""
    yield from _order(rows, broker, skips=skips)
    yield from _losses(rows, broker)
    yield from _receipts(rows, broker)
    for arrival in broker.arrivals:
        if arrival.message.event_id in withdrawn:
            yield f"a ghost: {arrival} was rolled back"


def _order(rows: Rows, broker: Broker, *, skips: bool) -> Iterator[str]:
    numbers = {messages[0].event_id: number for number, messages in rows.events.items()}
    first: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for at, arrival in enumerate(broker.arrivals):
        message = arrival.message
        if message.key is None or (skips and (message.event_id, message.destination) in broker.failed):
            continue
        first[message.destination, message.key].setdefault(numbers.get(message.event_id, -1), at)
    for stream, found in first.items():
        if list(found) != sorted(found):
            yield f"out of order in {stream}: first occurrences of {list(found)}"
    if not skips:
        yield from _gaps(rows, first)


def _gaps(rows: Rows, first: dict[tuple[str, str], dict[int, int]]) -> Iterator[str]:
    """Under hold, no event of a stream is at the broker while an earlier one is not."""
    for (destination, key), found in first.items():
        mine = [n for n, ms in rows.events.items() if ms[0].key == key and destination in {m.destination for m in ms}]
        if missing := [number for number in mine if number < max(found) and number not in found]:
            yield f"sent although {missing} was not, in {(destination, key)}: {list(found)}"


def _losses(rows: Rows, broker: Broker) -> Iterator[str]:
    arrived = Counter((one.message.event_id, one.message.destination) for one in broker.arrivals)
    for number, messages in rows.events.items():
        for dest, message in enumerate(messages):
            places = [(number, dest) in one for one in (rows.ready, rows.parked, rows.receipts)]
            if sum(places) != 1:
                yield f"({number}, {dest}) is in {sum(places)} places (ready, parked, receipts): {places}"
            if (number, dest) in rows.receipts and not arrived[message.event_id, message.destination]:
                yield f"({number}, {dest}) has a receipt, but is not at the broker"


def _receipts(rows: Rows, broker: Broker) -> Iterator[str]:
    offsets: dict[tuple[str, str], set[int]] = defaultdict(set)
    for arrival in broker.arrivals:
        offsets[arrival.message.event_id, arrival.message.destination].add(arrival.offset)
    for (number, dest), receipt in rows.receipts.items():
        message = rows.events[number][dest]
        if receipt.offset not in offsets[message.event_id, message.destination]:
            yield f"the receipt of ({number}, {dest}) names offset {receipt.offset}, which is not its"


def effects(engine: Engine, arrivals: list[Arrival], random: Random) -> Iterator[str]:
    """Apply what arrived through the real inbox, with crashes and redeliveries; every effect must be there once."""
    at = 0
    while at < len(arrivals):
        batch = arrivals[at : at + random.randint(1, 20)]
        crashes = random.random() < 0.2
        with engine.connect() as connection:
            for arrival in batch:
                _apply(connection, arrival)
            if crashes:
                connection.rollback()
            else:
                connection.commit()
        # After a crash all of it comes again; sometimes the acknowledgement is lost, and a part comes again.
        at += 0 if crashes else random.randint(1, len(batch)) if random.random() < 0.2 else len(batch)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT consumer, event_id, COUNT(*) FROM effect GROUP BY 1, 2").all()
    for consumer, event_id, count in rows:
        if count != 1:
            yield f"{consumer} applied {event_id} {count} times"
    expected = {(one.message.destination, one.message.event_id) for one in arrivals}
    if missing := expected - {(row[0], row[1]) for row in rows}:
        yield f"never applied: {missing}"


def _apply(connection, arrival: Arrival) -> None:  # type: ignore[no-untyped-def]
    message = arrival.message
    if Inbox(message.destination).once(connection, message.event_id):
        connection.exec_driver_sql(
            f"INSERT INTO effect VALUES ('{message.destination}', '{message.event_id}', {arrival.offset:d})"
        )
