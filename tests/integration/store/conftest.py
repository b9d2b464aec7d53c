"""One database for each kind and module, emptied before each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_outbox import SqlOutbox

EVERY_DATABASE = [
    pytest.param("sqlite"),
    *(pytest.param(name, marks=pytest.mark.services) for name in DATABASES),
]


@pytest.fixture(scope="module", params=EVERY_DATABASE)
def shared_outbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlOutbox]:
    """To choose databases, parametrise this one with `indirect=True`."""
    if request.param == "sqlite":
        yield from _opened(f"sqlite:///{Path(tmp_path_factory.mktemp('store')) / 'outbox.db'}")
        return
    with fresh_database(_need(request, request.param).url) as url:
        yield from _opened(url)


@pytest.fixture
def outbox(shared_outbox: SqlOutbox) -> SqlOutbox:
    shared_outbox.empty()
    return shared_outbox


def _opened(url: str) -> Iterator[SqlOutbox]:
    outbox = SqlOutbox(url)
    yield outbox
    outbox.close()
