"""The stores' contracts with a table prefix, on a server of each family; the outbox beside it feels nothing.

Every statement on MySQL is asked for by ``-m long``; its names are translated by the same code.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine

from pillarbox.store.engines import relay_engine
from pillarbox.store.install import install
from pillarbox.testing.conformance.ordered_store import OrderedStoreConformance
from pillarbox.testing.conformance.store import StoreConformance
from tests.servers import fresh_database
from tests.services_fixtures import _need
from tests.sql_ordered import OrderedOutbox
from tests.sql_outbox import TABLES, SqlOutbox

PREFIX = "shop_"
FAMILIES = (
    "sqlite",
    pytest.param("mysql", marks=[pytest.mark.services, pytest.mark.long]),
    pytest.param("postgres", marks=pytest.mark.services),
)


@contextmanager
def neighbour(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database with an outbox without prefix; when all is done, nobody has used that."""
    if request.param == "sqlite":
        with _untouched(f"sqlite:///{factory.mktemp('prefixed') / 'outbox.db'}") as url:
            yield url
    else:
        with fresh_database(_need(request, request.param).url) as url, _untouched(url):
            yield url


@contextmanager
def _untouched(url: str) -> Iterator[str]:
    engine = relay_engine(url)
    install(engine, ["outbox"])
    yield url
    assert _traces(engine) == {}
    engine.dispose()


def _traces(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        counts = {
            table: connection.exec_driver_sql(f"SELECT COUNT(*) FROM {table}").scalar_one()
            for table in (*TABLES, "outbox_lane", "outbox_relay")
        }
        owned = "SELECT COUNT(*) FROM outbox_partition WHERE token <> 0 OR low_id <> 0"
        counts["outbox_partition"] = connection.exec_driver_sql(owned).scalar_one()
    return {table: count for table, count in counts.items() if count}


class TestRowLease(StoreConformance):
    @pytest.fixture(scope="class", params=FAMILIES)
    @classmethod
    def shared(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlOutbox]:
        with neighbour(request, tmp_path_factory) as url:
            outbox = SqlOutbox(url, table_prefix=PREFIX)
            yield outbox
            outbox.close()

    @pytest.fixture
    def under_test(self, shared: SqlOutbox) -> SqlOutbox:
        shared.empty()
        return shared


class TestPartitionLease(OrderedStoreConformance):
    @pytest.fixture(scope="class", params=FAMILIES)
    @classmethod
    def shared(
        cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[OrderedOutbox]:
        with neighbour(request, tmp_path_factory) as url:
            outbox = OrderedOutbox(url, table_prefix=PREFIX)
            yield outbox
            outbox.close()

    @pytest.fixture
    def under_test(self, shared: OrderedOutbox) -> OrderedOutbox:
        shared.empty()
        return shared
