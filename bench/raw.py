"""The raw side of a drain: which bare drivers belong to which URLs."""

from __future__ import annotations

from importlib import import_module

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
            return import_module("bench.raw_postgres").RawPostgres(url)
        case "sqlite":
            return import_module("bench.raw_sqlite").RawSQLite(url)
        case _:
            return import_module("bench.raw_mysql").RawMySQL(url)


def open_broker(job: Job) -> RawBroker:
    """Connected, nothing sent yet."""
    match job.broker.split(":", 1)[0]:
        case "kafka":
            return import_module("bench.raw_kafka").RawKafka(job.broker.removeprefix("kafka://"), job.batch)
        case "amqp":
            return import_module("bench.raw_rabbitmq").RawRabbitMQ(job.broker)
        case "embedded":
            return import_module("bench.raw_embedded").RawEmbedded(job.broker, job.destination)
        case _:
            return import_module("bench.raw_null").RawNull()
