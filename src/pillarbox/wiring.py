"""Putting the parts together: from settings to an engine, a connection with checked tables, a relay."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from . import __version__
from .errors import BadUrl, ConfigError, TablesMissing
from .masking import mask_whole_url
from .policy.retry import RetryPolicy
from .ports import Publisher
from .publish.registry import make_publisher
from .relay import OrderedRelay, Relay, RelaySettings
from .store.engines import Timeouts, check_schema, connect_error, relay_engine
from .store.ordered import PartitionStore
from .store.rowlease import RowLeaseStore
from .store.transactions import Transactions

if TYPE_CHECKING:
    from .config import Config, RelayConfig  # pydantic is slow to import, and the library does without the settings
    from .ops.prune import HandOver, Rules


Ownership = Literal["partition", "row"]


@contextmanager
def open_engine(config: Config, *, pool_size: int = 4, timeouts: Timeouts | None = None) -> Iterator[Engine]:
    """The engine of the configured database, disposed of at the end. Driver errors become PillarboxErrors."""
    url = database_url(config)
    engine = relay_engine(url, pool_size=pool_size, timeouts=timeouts, table_prefix=config.table_prefix)
    try:
        yield engine
    except SQLAlchemyError as error:
        raise connect_error(error, url) from error
    except RuntimeError as error:
        if "cryptography" not in str(error):  # PyMySQL's way to say that caching_sha2_password needs that package
            raise
        raise connect_error(error, url) from error
    finally:
        engine.dispose()


@contextmanager
def open_checked_engine(config: Config, *, pool_size: int = 4, timeouts: Timeouts | None = None) -> Iterator[Engine]:
    """`open_engine`, tables checked: TablesMissing (PB-006) or SchemaMismatch (PB-007) when they do not fit."""
    _refuse_missing_file(database_url(config))
    with open_engine(config, pool_size=pool_size, timeouts=timeouts) as engine:
        Transactions(engine).read(check_schema)
        yield engine


@contextmanager
def open_tables(config: Config) -> Iterator[Transactions]:
    """Short transactions on a database with outbox tables, for looking and for operations."""
    with open_checked_engine(config) as engine:
        yield Transactions(engine)


@contextmanager
def open_pruning_engine(config: Config) -> Iterator[Engine]:
    """`open_checked_engine` for a pruner: it waits for a lock no longer than a second, others come first."""
    with open_checked_engine(config, pool_size=2, timeouts=Timeouts(lock=1)) as engine:
        yield engine


def prune_rules(config: Config, archive_function: HandOver | None = None) -> Rules:
    """The configured retention. ``archive_function`` is what ``retention.archive`` names, unless that is a table."""
    from .ops.prune import TO_TABLE, Rules
    from .policy.retention import Keep

    found = config.retention
    archive = TO_TABLE if found.archive == TO_TABLE else archive_function
    keep = Keep(sent=found.keep, dead=found.keep_dead)
    return Rules(
        keep,
        rate=found.rate,
        batch=found.batch,
        interval=found.interval,
        archive=archive,
        minimal_row_image=found.minimal_row_image,
    )


@contextmanager
def build_relay(config: Config, relay_id: str | None = None) -> Iterator[Relay | OrderedRelay]:
    """A relay that is ready to run: tables checked, publisher not opened (the relay waits for a broker that is away).

    ``relay_id`` is its name in leases and receipts; the default is a new one. Raises what is wrong with the database or
    with either URL; an unreachable broker is not among it.
    """
    settings = relay_settings(config.relay)
    publisher = make_publisher(broker_url(config), deadline=settings.broker_deadline)
    with open_checked_engine(config) as engine:
        # What is archived goes by the pruner, which hands it over first.
        at_once = config.retention.by_relay and config.retention.keep == 0 and config.retention.archive is None
        yield _relay(engine, publisher, settings, config.relay.ownership, relay_id, keep_sent=not at_once)


def relay_for(
    database: str,
    broker: str,
    settings: RelaySettings | None = None,
    *,
    ownership: Ownership = "partition",
    keep_sent: bool = True,
    table_prefix: str = "",
) -> Relay | OrderedRelay:
    """A relay for an application that runs its own: ``with relay_for(url, broker_url).started(): …``.

    ``ownership`` partition keeps the order of each key; row is for competing workers without order.
    ``keep_sent`` False deletes each event with its settlement (partition only), but never the highest id.
    ``table_prefix`` is the Outbox's. It has its own pool of connections and its own threads, so that requests do not
    wait for it. The tables are checked now, the broker is waited for. Raises BadUrl, MissingDriver, BadTablePrefix,
    DatabaseUnavailable, AccessRefused, TablesMissing or SchemaMismatch.
    """
    settings = settings or RelaySettings()
    publisher = make_publisher(broker, deadline=settings.broker_deadline)
    engine = relay_engine(database, table_prefix=table_prefix)
    try:
        with engine.connect() as connection:
            check_schema(connection)
    except SQLAlchemyError as error:
        raise connect_error(error, database) from error
    return _relay(engine, publisher, settings, ownership, keep_sent=keep_sent)


def _relay(
    engine: Engine,
    publisher: Publisher,
    settings: RelaySettings,
    ownership: Ownership,
    relay_id: str | None = None,
    *,
    keep_sent: bool = True,
) -> Relay | OrderedRelay:
    name, host = relay_id or new_relay_id(), socket.gethostname()
    if ownership == "row":
        rows = RowLeaseStore(engine, relay_id=name, lease=settings.lease, host=host, version=__version__)
        return Relay(rows, publisher, settings)
    store = PartitionStore(
        engine, relay_id=name, lease=settings.lease, host=host, version=__version__, keep_sent=keep_sent
    )
    return OrderedRelay(store, publisher, settings)


def relay_settings(relay: RelayConfig) -> RelaySettings:
    """What the relay itself wants to know, out of the command line's tree."""
    retry = RetryPolicy(**relay.retry.model_dump())
    return RelaySettings(
        lease=relay.lease,
        broker_deadline=relay.broker_deadline,
        batch=relay.batch,
        retry=retry,
        poll_min=relay.poll_min,
        poll_max=relay.poll_max,
        due_interval=relay.due_interval,
        linger=relay.linger,
        on_failure=relay.on_failure,
        max_bytes=relay.max_bytes,
        late_commit=relay.late_commit,
        probe_interval=relay.probe_interval,
    )


def new_relay_id() -> str:
    """``host-pid-random``: unique, also when a container gets the same host name and pid again."""
    tail = f"-{os.getpid()}-{secrets.token_hex(3)}"
    host = socket.gethostname().encode("ascii", "replace").decode().replace(" ", "_")
    return host[: 64 - len(tail)] + tail


def database_url(config: Config) -> str:
    """The configured database, or ConfigError (PB-001) that says where to put it."""
    return _needed(config.database, "database", "mysql+pymysql://user:password@host/name")


def broker_url(config: Config) -> str:
    """The configured broker, or ConfigError (PB-001) that says where to put it."""
    return _needed(config.broker, "broker", "kafka://host:9092")


def dialect_name(url: str) -> str:
    """The SQL dialect a database URL names, without connecting or importing a driver."""
    try:
        return make_url(url).get_backend_name()
    except (ArgumentError, ValueError) as error:  # a port that is no number is a ValueError
        raise BadUrl(f"{mask_whole_url(url)!r} is no database URL.") from error


def _needed(value: str | None, key: str, example: str) -> str:
    if value:
        return value
    from .config import variable

    raise ConfigError(
        f"No {key} is given.",
        fix=f"Set {variable(key)}={example}, or `{key} = …` in pillarbox.toml, or pass --{key}.",
    )


def _refuse_missing_file(url: str) -> None:
    """SQLite creates a missing file on connect; a mistyped path would leave an empty database behind."""
    if not url.startswith("sqlite") or dialect_name(url) != "sqlite":
        return
    name = make_url(url).database
    # Not Path.exists, which raises for a name that is too long.
    if name and name != ":memory:" and not name.startswith("file:") and not os.path.exists(name):
        raise TablesMissing(f"There is no SQLite file {name}.")
