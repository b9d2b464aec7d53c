"""The raw side of a drain: which bare drivers belong to which URLs."""

from __future__ import annotations

from sqlalchemy import make_url

from bench.job import Job
from bench.raw_loop import RawBroker, RawDatabase, drain
from bench.stopwatch import Stopwatch


def run(job: Job, watch: Stopwatch) -> None:
    """Connect, then drain until nothing is left."""
    database, broker = open_database(job.database), open_broker(job)
    drain(database, broker, job.batch, watch)
    broker.close()


def open_database(url: str) -> RawDatabase:
    """Connected, nothing claimed yet. Clients are imported where they are used, to keep a process small."""
    match make_url(url).get_backend_name():
        case "postgresql":
            from bench.raw_postgres import RawPostgres

            return RawPostgres(url)
        case "sqlite":
            from bench.raw_sqlite import RawSQLite

            return RawSQLite(url)
        case _:
            from bench.raw_mysql import RawMySQL

            return RawMySQL(url)


def open_broker(job: Job) -> RawBroker:
    """Connected, nothing sent yet."""
    match job.broker.split(":", 1)[0]:
        case "kafka":
            from bench.raw_kafka import RawKafka

            return RawKafka(job.broker.removeprefix("kafka://"), job.batch)
        case "amqp":
            from bench.raw_rabbitmq import RawRabbitMQ

            return RawRabbitMQ(job.broker)
        case "embedded":
            from bench.raw_embedded import RawEmbedded

            return RawEmbedded(job.broker, job.destination)
        case _:
            from bench.raw_null import RawNull

            return RawNull()
