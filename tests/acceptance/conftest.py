"""Fixtures of the acceptance tests: the command line in an empty folder, and a database with events in it."""

from pathlib import Path

import pytest

from .events import Shop
from .processes import Cli, Inline


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Real processes. About a second each: for what only a process shows."""
    return Cli(tmp_path)


@pytest.fixture
def inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inline:
    """The command line in this process: for many small cases."""
    return Inline(tmp_path, monkeypatch, capsys)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A SQLite database with outbox and inbox, and an embedded broker beside it; both still without events."""
    return Shop.made(f"sqlite:///{tmp_path / 'shop.db'}", f"embedded:///{tmp_path / 'log.db'}")
