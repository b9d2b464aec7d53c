from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pillarbox.consume import Consumer, Received
from pillarbox.consume.sources import make_source
from pillarbox.errors import BadConsumer, BadHandler, BadUrl, EventTypeTwice, NotAnEventType
from pillarbox.event.types import event_type

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers


@event_type("order.created")
@dataclass(frozen=True, slots=True)
class OrderCreated:
    total: str


@event_type("order.paid")
@dataclass(frozen=True, slots=True)
class OrderPaid:
    total: str


@pytest.fixture
def consumer() -> Consumer:
    return Consumer("stock", database="sqlite://", broker="embedded:///nowhere/log", sources=["orders"])


def test_a_consumer_is_made_without_database_broker_or_client(consumer: Consumer) -> None:
    assert consumer.event_types == ()
    Consumer("stock", database="postgresql+psycopg://nowhere/x", broker="kafka://nowhere:1", sources=["orders"])


def test_a_handler_is_returned_unchanged(consumer: Consumer) -> None:
    def reserve(event: Received[OrderCreated], session: Session) -> None: ...

    assert consumer.on(OrderCreated)(reserve) is reserve
    assert consumer.event_types == ("order.created",)


def test_parameters_are_found_by_annotation_in_any_order_and_under_any_name(consumer: Consumer) -> None:
    @consumer.on(OrderCreated)
    def one(db: Session, what: Received[OrderCreated]) -> None: ...

    @consumer.on("order.created")
    def two(c: Connection, /, e: Received[dict[str, Any]]) -> None: ...

    @consumer.on(OrderCreated)
    def three(*, e: Received) -> None: ...

    found = consumer.registrations.of("order.created")
    assert [handler.signature.fills for handler in found] == [
        (("db", "session"), ("what", "event")),
        (("c", "connection"), ("e", "event")),
        (("e", "event"),),
    ]
    assert [handler.into for handler in found] == [OrderCreated, dict[str, Any], OrderCreated]


def test_types_defined_in_the_same_function_are_resolved(consumer: Consumer) -> None:
    @event_type("local.happened")
    @dataclass
    class Happened:
        x: int

    @consumer.on(Happened)
    def handle(event: Received[Happened]) -> None: ...

    assert consumer.registrations.of("local.happened")[0].into is Happened


def test_a_second_class_of_one_type_and_version_is_refused_when_it_is_registered(consumer: Consumer) -> None:
    @event_type("order.created")
    @dataclass
    class AnotherView:
        total: float

    @event_type("order.created", version=2)
    @dataclass
    class NextVersion:
        total: str

    @consumer.on(OrderCreated)
    def one(event: Received[OrderCreated]) -> None: ...

    @consumer.on(OrderCreated)
    def again(event: Received[OrderCreated]) -> None: ...

    @consumer.on("order.created")
    def plain(event: Received[Any]) -> None: ...

    @consumer.on(NextVersion)
    def newer(event: Received[NextVersion]) -> None: ...

    with pytest.raises(EventTypeTwice, match=r"Version 1 of 'order.created' is .*OrderCreated already.*AnotherView"):

        @consumer.on(AnotherView)
        def other(event: Received[AnotherView]) -> None: ...

    assert len(consumer.registrations.of("order.created")) == 4


def test_methods_and_callable_objects_can_be_handlers(consumer: Consumer) -> None:
    class Handlers:
        def reserve(self, event: Received[OrderCreated]) -> None: ...

        def __call__(self, event: Received[OrderCreated]) -> None: ...

    consumer.on(OrderCreated)(Handlers().reserve)
    consumer.on(OrderCreated)(Handlers())
    assert len(consumer.registrations.of("order.created")) == 2


def test_a_return_type_that_exists_only_for_type_checkers_does_not_matter(consumer: Consumer) -> None:
    @consumer.on(OrderCreated)
    def handle(event: Received[OrderCreated], note: int = 3) -> OnlyForTypeCheckers: ...

    assert consumer.event_types == ("order.created",)


def _missing(event: Received[OrderCreated], other: OnlyForTypeCheckers) -> None: ...
def _unannotated(event) -> None: ...  # type: ignore[no-untyped-def]
def _no_event(session: Session) -> None: ...
def _two_events(a: Received[OrderCreated], b: Received[OrderCreated]) -> None: ...
def _two_connections(e: Received[OrderCreated], a: Session, b: Connection) -> None: ...
def _star(event: Received[OrderCreated], *rest: Session) -> None: ...
def _async_session(event: Received[OrderCreated], session: AsyncSession) -> None: ...
def _foreign(event: Received[OrderCreated], name: str) -> None: ...
def _other_type(event: Received[OrderPaid]) -> None: ...
def _optional(event: Received[OrderCreated], session: Session | None) -> None: ...
async def _async(event: Received[OrderCreated]) -> None: ...
def _generator(event: Received[OrderCreated]) -> Any:
    yield event


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (_missing, "'OnlyForTypeCheckers' of parameter 'other' of handler '_missing' cannot be resolved"),
        (_unannotated, "'event' of handler '_unannotated' is not annotated"),
        (_no_event, "exactly one Received"),
        (_two_events, "exactly one Received"),
        (_two_connections, "more than one Session or Connection"),
        (_star, "'rest' of handler '_star' is not annotated"),
        (_async_session, "asynchronous"),
        (_foreign, "'name' of handler '_foreign' is annotated str"),
        (_other_type, "registered for 'order.created' but takes a payload of 'order.paid'"),
        (_optional, "'session' of handler '_optional' is annotated"),
        (_async, "'_async' is async"),
        (_generator, "is a generator"),
    ],
)
def test_what_cannot_be_filled_is_refused_when_it_is_registered(consumer: Consumer, handler: Any, says: str) -> None:
    with pytest.raises(BadHandler, match="PB-040") as caught:
        consumer.on(OrderCreated)(handler)
    assert says in str(caught.value)
    assert consumer.event_types == ()


def test_a_class_without_an_event_type_cannot_be_registered(consumer: Consumer) -> None:
    with pytest.raises(NotAnEventType):

        @consumer.on(dict)
        def handle(event: Received) -> None: ...


def test_a_payload_type_that_nothing_can_be_decoded_into_is_refused_at_import(consumer: Consumer) -> None:
    """Found at the first event instead, each event would become a dead letter."""
    with pytest.raises(BadHandler, match=r"PB-040.*unions"):

        @consumer.on("order.changed")
        def handle(event: Received[OrderCreated | OrderPaid]) -> None: ...


@pytest.mark.parametrize("name", ["", "x" * 101, "a/b", "with space", "a\n", None])
def test_a_name_that_cannot_be_an_identity_is_refused(name: Any) -> None:
    with pytest.raises(BadConsumer, match="PB-041"):
        Consumer(name, database="sqlite://", broker="embedded:///x", sources=["orders"])


@pytest.mark.parametrize("sources", [[], "orders", ["a", "a"], None])
def test_sources_are_a_list_of_different_names(sources: Any) -> None:
    with pytest.raises(BadConsumer, match="PB-041"):
        Consumer("x", database="sqlite://", broker="embedded:///x", sources=sources)


def test_an_unknown_broker_scheme_is_refused_at_import() -> None:
    with pytest.raises(BadUrl, match="amqp"):
        Consumer("x", database="sqlite://", broker="redis://x", sources=["orders"])


@pytest.mark.parametrize("way", ["on", "on_batch"])
def test_a_decorator_without_its_event_type_is_refused_instead_of_registering_nothing(
    consumer: Consumer, way: str
) -> None:
    def reserve(event: Received[OrderCreated]) -> None: ...

    with pytest.raises(BadHandler, match=rf"reserve.*\n?.*@consumer\.{way}\(EventType\)"):
        getattr(consumer, way)(reserve)


def test_a_batch_handler_that_takes_one_event_is_told_to_take_a_list(consumer: Consumer) -> None:
    with pytest.raises(
        BadHandler, match=r"is annotated .*Received\[.*OrderCreated\].*one parameter list\[Received\[T\]\] and"
    ):

        @consumer.on_batch(OrderCreated)
        def reserve(event: Received[OrderCreated]) -> None: ...


def test_an_option_that_the_brokers_source_does_not_take_is_named(consumer: Consumer) -> None:
    with pytest.raises(BadConsumer, match=r"leese.*embedded://.*Per broker"):
        make_source("embedded:log.db", "stock", ["orders"], {"leese": 3})
