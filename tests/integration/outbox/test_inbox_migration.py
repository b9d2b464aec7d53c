"""The inbox's tables up and down: marks stay, and what is in doubt is not forgotten by mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, inspect, text

from pillarbox.effects import Effects
from pillarbox.errors import InitBusy
from pillarbox.inbox import Inbox
from pillarbox.store.engines import relay_engine
from pillarbox.store.install import downgrade, install

EFFECTS = {"inbox_effect", "inbox_resolution"}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    found = relay_engine(database_url)
    install(found, ["inbox"])
    yield found
    found.dispose()


def test_an_inbox_goes_back_to_the_first_revision_and_up_again_with_its_marks(engine: Engine) -> None:
    with engine.begin() as connection:
        assert Inbox("stock").once(connection, "e-1")
    Effects("stock", engine).call("e-1", "charge", lambda key: "ok")
    assert downgrade(engine, "0001", part="inbox") == "Took the inbox back from 0002 to 0001."
    assert not EFFECTS & set(inspect(engine).get_table_names())
    with engine.begin() as connection:
        assert not Inbox("stock").once(connection, "e-1")
    assert downgrade(engine, "0001", part="inbox") == "The inbox is at revision 0001; nothing to take back."
    assert install(engine, ["inbox"]) == ["Migrated the inbox from 0001 to 0002."]
    assert set(inspect(engine).get_table_names()) >= EFFECTS
    with engine.begin() as connection:
        assert not Inbox("stock").once(connection, "e-1")


def test_an_init_that_was_killed_between_its_statements_is_run_again(engine: Engine) -> None:
    downgrade(engine, "0001", part="inbox")
    install(engine, ["inbox"])
    with engine.begin() as connection:
        connection.execute(text("UPDATE inbox_alembic SET version_num = '0001'"))
        connection.execute(text("DROP TABLE inbox_resolution"))
    assert install(engine, ["inbox"]) == ["Migrated the inbox from 0001 to 0002."]
    assert set(inspect(engine).get_table_names()) >= EFFECTS


def test_no_way_back_while_an_effect_is_in_doubt(engine: Engine) -> None:
    def fail(key: str) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        Effects("stock", engine).call("e-1", "charge", fail)
    with pytest.raises(InitBusy, match="in doubt"):
        downgrade(engine, "0001", part="inbox")
