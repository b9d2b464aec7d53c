"""The pytest plugin, found through the package's entry point: fixtures for users' tests.

Everything is imported when a fixture is used, not before: pytest loads this module in every run of every project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from ..lab.proxy import FaultProxy
    from .recorder import OutboxRecorder


class MakeFaultProxy(Protocol):
    """What the fixture ``fault_proxy`` gives: a proxy before ``host:port``, at a free port or the one to listen on."""

    def __call__(self, host: str, port: int, *, listen_on: int = 0) -> FaultProxy: ...


@pytest.fixture
def pillarbox_outbox() -> Iterator[OutboxRecorder]:
    """The events that the code under test commits, and their delivery to consumers, without a broker::

        def test_order(pillarbox_outbox):
            create_order()
            assert pillarbox_outbox.committed(OrderCreated).one().payload.total == Decimal("19.90")
            pillarbox_outbox.deliver_to(consumer)

    The code under test uses its own engine, with the tables in it (``pillarbox.install(engine)``); SQLite will do.
    """
    from .recorder import OutboxRecorder

    recorder = OutboxRecorder()
    with recorder.listening():
        yield recorder


@pytest.fixture
def fault_proxy() -> Iterator[MakeFaultProxy]:
    """A factory of proxies that break connections to a real server; all are closed when the test ends::

    def test_an_order_survives_a_lost_answer(fault_proxy):
        proxy = fault_proxy("127.0.0.1", 5432)
        engine = create_engine(proxy.through("postgresql+psycopg://shop@127.0.0.1:5432/shop"))
        proxy.lose_answers()
        …
    """
    from ..lab.proxy import FaultProxy

    with ExitStack() as opened:

        def make(host: str, port: int, *, listen_on: int = 0) -> FaultProxy:
            return opened.enter_context(FaultProxy(host, port, listen_on=listen_on))

        yield make


@pytest.fixture
def assert_exactly_once_effect() -> Callable[..., None]:
    """Assert that each event had its effect once, by the rows that it left, and no other event had one::

        def test_every_order_is_paid_once(assert_exactly_once_effect):
            …
            assert_exactly_once_effect(engine, payment.c.event_id, event_ids, within=10)

    See :func:`pillarbox.testing.exactly_once.assert_exactly_once_effect`.
    """
    from .exactly_once import assert_exactly_once_effect

    return assert_exactly_once_effect
