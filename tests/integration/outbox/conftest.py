"""One database for each server and test module: making the tables takes longer than these tests do.

The tests of a module share it, and keep apart by the names of their orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.integration.outbox.shop import (
    ASYNC,
    SYNC,
    installed,
    open_async_engine,
    open_engine,
    parameters,
    with_driver,
)
from tests.servers import fresh_database
from tests.services_fixtures import _need


class Shops:
    """The module's databases by server name, made when first asked for."""

    def __init__(self, request: pytest.FixtureRequest, folder: str) -> None:
        self._request = request
        self._folder = folder
        self._stack = ExitStack()
        self._urls: dict[str, str] = {}

    def url(self, server: str) -> str:
        if server not in self._urls:
            self._urls[server] = self._make(server)
        return self._urls[server]

    def close(self) -> None:
        self._stack.close()

    def _make(self, server: str) -> str:
        if server == "sqlite":
            url = f"sqlite:///{self._folder}/shop.db"
        else:
            url = self._stack.enter_context(fresh_database(_need(self._request, server).url))
        with installed(url):
            return url


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    found = Shops(request, str(tmp_path_factory.mktemp("shops")))
    yield found
    found.close()


@pytest.fixture(params=parameters(SYNC))
def engine(request: pytest.FixtureRequest, shops: Shops) -> Iterator[Engine]:
    """The shop's database through each synchronous driver."""
    server, drivername = SYNC[request.param]
    if drivername.endswith("mysqldb"):
        request.getfixturevalue("mysqldb")
    found = open_engine(with_driver(shops.url(server), drivername))
    yield found
    found.dispose()


@pytest.fixture(params=parameters(ASYNC))
def async_engine(request: pytest.FixtureRequest, shops: Shops) -> AsyncEngine:
    """The shop's database through each asynchronous driver, without a pool."""
    server, drivername = ASYNC[request.param]
    return open_async_engine(with_driver(shops.url(server), drivername))


@pytest.fixture
def reader(async_engine: AsyncEngine, shops: Shops, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A synchronous look at the database of ``async_engine``."""
    server, _ = ASYNC[request.node.callspec.params["async_engine"]]
    found = open_engine(shops.url(server))
    yield found
    found.dispose()
