"""The runs whose figures are in the documentation, by name: what to run, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Summary = dict[str, Any]


class Bar(NamedTuple):
    """``measured(summary)`` must be at least, or at most, ``limit``."""

    what: str
    measured: Callable[[Summary], float]
    limit: float
    at_least: bool = True
    counted: bool = False  # and not timed: a busy machine does not change it

    def holds(self, summary: Summary) -> bool:
        """Whether this run met it."""
        found = self.measured(summary)
        return found >= self.limit if self.at_least else found <= self.limit


class Run(NamedTuple):
    """``long``: takes minutes, or gigabytes of disk."""

    name: str
    arguments: str
    bars: Sequence[Bar] = ()
    long: bool = False


def at(*path: str) -> Callable[[Summary], float]:
    """The number at this place of a summary."""

    def measured(summary: Summary) -> float:
        found: Any = summary
        for key in path:
            found = found[key]
        return float(found)

    return measured


def ratio(least: float) -> Bar:
    """Product over raw loop."""
    return Bar("rate, product : raw", at("ratio"), least)


def most(what: str, limit: float, *path: str) -> Bar:
    """A time, or a share of one, that must not be larger."""
    return Bar(what, at(*path), limit, at_least=False)


def count(what: str, limit: float, *path: str) -> Bar:
    """A count or a size that must not be larger."""
    return Bar(what, at(*path), limit, at_least=False, counted=True)


def _work(writes: float) -> tuple[Bar, Bar]:
    work = ("product", "database_work_per_event")
    return (
        count("commits per event", 0.02, *work, "commits"),
        count("narrow rows written per event", writes, *work, "rows_written"),
    )


def _latency(database: str, broker: str, rate: int, poll: str, bars: Sequence[Bar]) -> Run:
    arguments = f"latency --database {database} --broker {broker} --rate {rate} --poll {poll}"
    return Run(f"latency-{database}-{broker}-{rate}", arguments, bars)


P50 = most("p50 to the broker, product : raw", 1.3, "ratio", "broker", "p50")
CONSUMER = (
    most("p50 to the consumer, product : raw", 1.3, "ratio", "consumer", "p50"),
    most("p99 to the consumer, product : raw", 1.3, "ratio", "consumer", "p99"),
)
ADD = (most("time of a transaction, add : raw", 1.3, "ratio"),)
WRITE = (most("time of a transaction, with : without", 1.25, "ratio"),)
BESIDE = (
    most("an application's p99, relay standalone : control", 1.1, "ratio", "standalone", "p99"),
    most("an application's p99, relay embedded : control", 1.5, "ratio", "embedded", "p99"),
)
HISTORY = (
    most("time of a read, with : without history", 1.2, "ratio", "take"),
    count("rows examined per event", 2.1, "with", "database_work_per_event", "rows_examined"),
)
RELAYS = (
    Bar("rate, 4 relays : 1", at("ratio", "4"), 0.8),
    count("rows examined per event, 4 relays", 1.1, "rows_examined_per_event", "4"),
)
MEMORY = (count("resident memory, MiB", 150, "rss_mib", "peak"),)
IDLE = (
    count("statements per second", 2, "statements_per_second"),
    most("first event after a rest, ms", 600, "first_event_milliseconds", "max"),
)
PARKED = (
    Bar("rate of setting aside : normal", at("ratio", "park"), 0.5),
    Bar("rate after the replay : normal", at("ratio", "drain"), 0.5),
    count("resident memory, MiB", 150, "peak_rss_mib"),
)
DEBEZIUM = (Bar("rate at the topic, relay : Debezium as it comes", at("ratio", "default"), 1.0),)
CONSUME = (Bar("events a second in batches", at("batched", "events_per_second", "product"), 10_000),)
OUTAGE = (
    most("seconds until the full rate", 5, "full_rate_after_seconds"),
    count("dead", 0, "dead"),
    count("charged", 0, "charged"),
)

RUNS: tuple[Run, ...] = (
    Run("drain-mysql-kafka", "drain --database mysql --broker kafka --events 200000", (ratio(0.8), *_work(2.05))),
    Run("drain-postgres-kafka", "drain --database postgres --broker kafka --events 200000", (ratio(0.8), *_work(2.05))),
    Run("drain-postgres-rabbitmq", "drain --database postgres --broker rabbitmq --events 60000", (ratio(0.8),)),
    Run("drain-mysql-rabbitmq", "drain --database mysql --broker rabbitmq --events 60000"),
    Run("drain-mariadb-rabbitmq", "drain --database mariadb --broker rabbitmq --events 60000"),
    Run("drain-sqlite-embedded", "drain --database sqlite --broker embedded --events 60000"),
    Run("drain-postgres-null", "drain --database postgres --events 100000", (ratio(0.6),)),
    Run("drain-mysql-null", "drain --database mysql --events 100000", (ratio(0.6),)),
    Run("drain-mysql57-null", "drain --database mysql57 --events 100000", (ratio(0.6),)),
    Run("drain-mariadb-null", "drain --database mariadb --events 100000", (ratio(0.6),)),
    Run("drain-mariadb102-null", "drain --database mariadb102 --events 100000", (ratio(0.6),)),
    Run("drain-sqlite-null", "drain --database sqlite --events 100000", (ratio(0.6),)),
    Run(
        "row-mysql-kafka",
        "drain --ownership row --database mysql --broker kafka --events 60000",
        (ratio(0.6), *_work(3.05)),
    ),
    Run(
        "row-postgres-kafka",
        "drain --ownership row --database postgres --broker kafka --events 60000",
        (ratio(0.6), *_work(3.05)),
    ),
    Run("row-postgres-null", "drain --ownership row --database postgres --events 60000", (ratio(0.6),)),
    Run("row-mysql-null", "drain --ownership row --database mysql --events 60000", (ratio(0.6),)),
    _latency("mysql", "kafka", 200, "0.005", (P50,)),
    _latency("mysql", "kafka", 1000, "0.002", CONSUMER),
    _latency("postgres", "kafka", 200, "0.005", (P50,)),
    _latency("postgres", "kafka", 1000, "0.002", CONSUMER),
    _latency("postgres", "rabbitmq", 200, "0.005", (P50,)),
    Run("idle-postgres", "idle --database postgres", IDLE),
    Run("idle-mysql", "idle --database mysql", IDLE),
    Run("add-postgres", "add --database postgres", ADD),
    Run("add-mysql", "add --database mysql", ADD),
    Run("add-sqlite", "add --database sqlite"),
    Run("write-postgres", "write --database postgres", WRITE),
    Run("write-mysql", "write --database mysql", WRITE),
    Run("consume-postgres", "consume --database postgres", CONSUME),
    Run("consume-mysql", "consume --database mysql", CONSUME),
    Run("beside-postgres", "beside --database postgres", BESIDE),
    Run("beside-mysql", "beside --database mysql", BESIDE),
    Run("hotkey-rabbitmq", "hotkey --database postgres --broker rabbitmq --events 3000", (ratio(0.9),)),
    Run("hotkey-kafka", "hotkey --database postgres --broker kafka --events 60000", (ratio(0.5),)),
    Run("parked-postgres", "parked --database postgres --broker kafka", PARKED),
    Run("parked-mysql", "parked --database mysql --broker kafka", PARKED),
    Run("relays-postgres", "relays --database postgres", RELAYS),
    Run("relays-mysql", "relays --database mysql", RELAYS),
    Run("relays-mysql-kafka", "relays --database mysql --broker kafka", RELAYS),
    Run("publish-rabbitmq", "publish --broker rabbitmq", (ratio(0.85),)),
    Run("outage-postgres", "outage --database postgres", OUTAGE),
    Run("history-postgres", "history --database postgres", HISTORY),
    Run("history-mysql", "history --database mysql", HISTORY),
    Run("debezium-mysql-kafka", "debezium --database mysql --events 100000", DEBEZIUM, long=True),
    Run("memory-large", "memory --database postgres --pending 500 --payload 1048576", MEMORY, long=True),
    Run("memory-postgres", "memory --database postgres --broker kafka --pending 1000000", MEMORY, long=True),
    Run("memory-mysql", "memory --database mysql --broker kafka --pending 1000000", MEMORY, long=True),
    Run(
        "steady-postgres",
        "steady --database postgres --broker kafka --minutes 10",
        (most("p50, last third : first", 1.2, "ratio"),),
        long=True,
    ),
    Run("long-history-postgres", "history --database postgres --sent 10000000 --pending 1000000", HISTORY, long=True),
    Run("long-history-mysql", "history --database mysql --sent 10000000 --pending 1000000", HISTORY, long=True),
)
