"""The pytest plugin, found through the package's entry point: the fixture ``pillarbox_outbox`` for users' tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .recorder import OutboxRecorder


@pytest.fixture
def pillarbox_outbox() -> Iterator[OutboxRecorder]:
    """The events that the code under test commits, and their delivery to consumers, without a broker::

        def test_order(pillarbox_outbox):
            create_order()
            assert pillarbox_outbox.committed(OrderCreated).one().payload.total == Decimal("19.90")
            pillarbox_outbox.deliver_to(consumer)

    The code under test uses its own engine, with the tables in it (``pillarbox.install(engine)``); SQLite will do.
    """
    from .recorder import OutboxRecorder  # not at the top: pytest loads this module in every run of every project

    recorder = OutboxRecorder()
    with recorder.listening():
        yield recorder
