"""The raw side: which bare drivers belong to which URLs."""

from __future__ import annotations

from sqlalchemy import make_url

from bench.job import Job, Ownership
from bench.raw_loop import OneAtATime, RawBroker, RawDatabase, drain
from bench.stopwatch import Stopwatch


def run(job: Job, watch: Stopwatch) -> None:
    """Connect, then drain until nothing is left."""
    database = open_database(job.ownership, job.database)
    broker = open_broker(job.broker, job.destination, job.batch, one_at_a_time=job.one_at_a_time)
    drain(database, broker, job.batch, watch)
    broker.close()


def open_database(ownership: Ownership, url: str, *, ahead: bool = True) -> RawDatabase:
    """Connected, nothing taken yet. Clients are imported where they are used, to keep a process small.

    ``ahead``: a batch is taken while the one before it is not settled yet.
    """
    kind = make_url(url).get_backend_name()
    if ownership == "partition":
        return _open_owned(kind, url, ahead)
    match kind:
        case "postgresql":
            from bench.raw_postgres import RawPostgres

            return RawPostgres(url)
        case "sqlite":
            from bench.raw_sqlite import RawSQLite

            return RawSQLite(url)
        case _:
            from bench.raw_mysql import RawMySQL

            return RawMySQL(url)


def _open_owned(kind: str, url: str, ahead: bool) -> RawDatabase:
    match kind:
        case "postgresql":
            from bench.raw_owned_postgres import OwnedPostgres

            return OwnedPostgres(url, ahead=ahead)
        case "sqlite":
            from bench.raw_owned_sqlite import OwnedSQLite

            return OwnedSQLite(url, ahead=ahead)
        case _:
            from bench.raw_owned_mysql import OwnedMySQL

            return OwnedMySQL(url, ahead=ahead)


def open_broker(
    url: str, destination: str, batch: int, *, linger_ms: float = 5, one_at_a_time: bool = False
) -> RawBroker:
    """Connected, nothing sent yet. ``one_at_a_time``: each message is confirmed before the next one is sent."""
    if one_at_a_time and not url.startswith("amqp"):
        return OneAtATime(open_broker(url, destination, batch, linger_ms=0))
    match url.split(":", 1)[0]:
        case "kafka":
            from bench.raw_kafka import RawKafka

            return RawKafka(url.removeprefix("kafka://"), batch, linger_ms)
        case "amqp":
            from bench.raw_rabbitmq import RawRabbitMQ

            return RawRabbitMQ(url, one_at_a_time=one_at_a_time)
        case "embedded":
            from bench.raw_embedded import RawEmbedded

            return RawEmbedded(url, destination)
        case _:
            from bench.raw_null import RawNull

            return RawNull()
