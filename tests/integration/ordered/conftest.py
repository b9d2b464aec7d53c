"""Every test here runs on MySQL and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.publish.memory import MemoryPublisher
from tests.crash.ordered_lab import Lab


@pytest.fixture(params=["mysql", "postgres"])
def database_name(request: pytest.FixtureRequest) -> str:
    """In place of the whole list."""
    return str(request.param)


@pytest.fixture
def lab(database_url: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(database_url, "orders", tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def broker() -> MemoryPublisher:
    """Writes down what arrives."""
    return MemoryPublisher()
