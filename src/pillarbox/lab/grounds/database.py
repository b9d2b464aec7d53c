"""A database server as the ground of one cell: two databases, their tables, and everything that is read from them.

What differs between servers is a :class:`Kind` of a few methods, one file each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine, exc, make_url
from sqlalchemy.engine import URL

from ...store.drivers import is_autocommit
from ...store.engines import BEGIN_OPTION, relay_engine
from ...store.failures import Fault, connect_error, fault_of
from ...store.install import install
from ..engines import plain_engine
from ..model import EventId, Facts, NotVisible, Record
from ..ports import Address
from .claims import Claim, forget
from .clocks import offset
from .facts import read_facts
from .tables import consumer_tables, shop_tables, tables_for

T = TypeVar("T")

PATIENCE: Final = 20.0
"""Seconds for a database that was just killed, restarted or is busy to answer a question of the lab."""

PARTS: Final = ("shop", "consumers")
_DISTRIBUTIONS: Final = {"pymysql": "PyMySQL", "mysqldb": "mysqlclient", "psycopg": "psycopg", "psycopg2": "psycopg2"}


class Kind(Protocol):
    """What the lab needs to know of a kind of database."""

    name: str
    default_port: int | None
    """None: a file, no network in between."""
    clock: str | None
    """SQL for the server's clock, seconds since 1970. None: it is this machine's own."""

    def settings(self, connection: Connection) -> Mapping[str, Any]:
        """Its version, and how safe a commit is, of an application's own connection."""
        ...


class ServerKind(Kind, Protocol):
    """One that has databases beside each other. Connections are in AUTOCOMMIT."""

    def create(self, connection: Connection, name: str) -> None:
        """Make a database, and mark it as the lab's."""
        ...

    def drop(self, connection: Connection, name: str) -> None:
        """Remove it, with whoever is still in it. Nothing happens where there is none."""
        ...

    def found(self, connection: Connection, prefix: str) -> Mapping[str, bool]:
        """The databases whose names begin so, and whether each has the lab's mark."""
        ...


@dataclass(slots=True)
class Ground:
    """A :class:`~pillarbox.lab.ports.DatabaseGround`: the databases of one cell. Made by :func:`ground_in`."""

    kind: Kind
    shop_url: str
    consumers_url: str
    _shop: Engine
    _consumers: Engine

    @property
    def name(self) -> str:
        """postgres, mysql, mariadb or sqlite."""
        return self.kind.name

    @property
    def address(self) -> Address | None:
        """Where the server listens; None for a file or a Unix socket."""
        url = make_url(self.shop_url)
        port = url.port or self.kind.default_port
        return Address(url.host, port) if url.host and port else None

    def through(self, url: str, port: int) -> str:
        """The same database through a proxy on 127.0.0.1."""
        if self.address is None:
            return url
        return make_url(url).set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def facts(self, event_ids: Sequence[EventId], records: Sequence[Record] | NotVisible) -> tuple[Facts, ...]:
        """All rows of these events and of those that only ``records`` know, as they are committed now."""
        return self._patiently(lambda shop, consumers: read_facts(shop, consumers, event_ids, records))

    def settings(self) -> Mapping[str, Any]:
        """The server, the driver, and what an application's session gets that asks for nothing special.

        ``relay_isolation_level`` is what Pillarbox asks for in its own sessions: those of relays and of the inbox.
        """
        own = self._patiently(lambda shop, _: shop.get_isolation_level())
        engine = plain_engine(self.shop_url)
        try:
            with engine.connect() as connection, connection.begin():
                return {
                    "database": self.name,
                    "driver": driver_of(engine),
                    "isolation_level": connection.get_isolation_level(),
                    "autocommit": is_autocommit(connection),
                    "relay_isolation_level": own,
                    **self.kind.settings(connection),
                }
        except exc.DBAPIError as error:
            raise connect_error(error, self.shop_url) from error
        finally:
            engine.dispose()

    def clock_offset(self) -> float:
        """The database's clock minus this process's, in seconds. A file's clock is this machine's own: 0."""
        clock = self.kind.clock
        if clock is None:
            return 0.0
        return self._patiently(lambda shop, _: offset(lambda: float(shop.exec_driver_sql(clock).scalar_one())))

    def _patiently(self, work: Callable[[Connection, Connection], T]) -> T:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with _reading(self._shop) as shop, _reading(self._consumers) as consumers:
                    return work(shop, consumers)
            except exc.DBAPIError as error:
                if fault_of(error) not in (Fault.LOST, Fault.BUSY) or time.monotonic() > until:
                    raise connect_error(error, self.shop_url) from error
                time.sleep(0.2)  # a server that comes up again


def _reading(engine: Engine) -> Connection:
    return engine.connect().execution_options(**{BEGIN_OPTION: "DEFERRED"})  # SQLite: without the write lock


@contextmanager
def ground_in(kind: Kind, shop_url: str, consumers_url: str) -> Iterator[Ground]:
    """The ground in two databases that are there and empty: makes the tables, closes every connection at the end."""
    shop, consumers = (relay_engine(url, pool_size=1) for url in (shop_url, consumers_url))
    try:
        install(shop, ["outbox"])
        tables_for(shop_tables, shop.dialect.name).create_all(shop)
        install(consumers, ["inbox"])
        tables_for(consumer_tables, consumers.dialect.name).create_all(consumers)
        yield Ground(kind, shop_url, consumers_url, shop, consumers)
    except exc.DBAPIError as error:
        raise connect_error(error, shop_url) from error
    finally:
        shop.dispose()
        consumers.dispose()


@contextmanager
def server_ground(kind: ServerKind, url: URL, claimed: Claim) -> Iterator[Ground]:
    """The ground on a server: the databases ``…_shop`` and ``…_consumers``, removed at the end, also after an error."""
    names = [f"{claimed.name}_{part}" for part in PARTS]
    with administration(url) as run:
        try:
            for name in names:
                run(partial(kind.create, name=name))
            shop, consumers = (url.set(database=name).render_as_string(hide_password=False) for name in names)
            with ground_in(kind, shop, consumers) as ground:
                yield ground
        finally:
            for name in names:
                run(partial(kind.drop, name=name))
            forget(claimed.name)


Run = Callable[[Callable[[Connection], T]], T]


@contextmanager
def administration(url: URL) -> Iterator[Run[Any]]:
    """A function that does something with an AUTOCOMMIT connection to ``url``, again where the connection was lost.

    Raises what :func:`.connect_error` makes of errors.
    """
    engine = relay_engine(url, pool_size=1)

    def run(work: Callable[[Connection], T]) -> T:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    return work(connection)
            except exc.DBAPIError as error:
                if fault_of(error) not in (Fault.LOST, Fault.BUSY) or time.monotonic() > until:
                    raise connect_error(error, url) from error
                time.sleep(0.2)

    try:
        yield run
    finally:
        engine.dispose()


def driver_of(engine: Engine) -> str:
    """The driver and its version, as ``psycopg 3.3.9``."""
    name = engine.dialect.driver
    if name == "pysqlite":
        return "sqlite3 of Python"
    try:
        return f"{name} {version(_DISTRIBUTIONS.get(name, name))}"
    except PackageNotFoundError:
        return name
