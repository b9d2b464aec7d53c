"""A database with the inbox table for all tests of a class: making one takes longer than a test does."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine

from pillarbox.consume.engine import consumer_engine
from pillarbox.store.install import install
from tests.servers import fresh_database
from tests.services_fixtures import _need


@contextmanager
def shared_database(
    request: pytest.FixtureRequest, name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    if name == "sqlite":
        with _with_inbox(f"sqlite:///{tmp_path_factory.mktemp('inbox') / 'test.db'}") as engine:
            yield engine
        return
    with fresh_database(_need(request, name).url) as url, _with_inbox(url) as engine:
        yield engine


@contextmanager
def _with_inbox(url: str) -> Iterator[Engine]:
    engine = consumer_engine(url, connections=8)
    try:
        install(engine, ["inbox"])
        yield engine
    finally:
        engine.dispose()
