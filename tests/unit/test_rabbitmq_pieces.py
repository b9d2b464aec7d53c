"""RabbitMQ's publisher without a broker: delivery tags, and messages as AMQP properties."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, spec
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorSocketConnectError,
    AMQPConnectorTransportSetupError,
)
from pika.exceptions import AMQPConnectionError, ShortStringTooLong

from pillarbox.event.destination import Topic
from pillarbox.event.message import KEY, from_wire, to_headers
from pillarbox.ports import Confirmed, Unknown
from pillarbox.publish.rabbitmq.batch import Batch
from pillarbox.publish.rabbitmq.connection import CorkedConnection
from pillarbox.publish.rabbitmq.frames import publish_frames
from pillarbox.publish.rabbitmq.ledger import Ledger
from pillarbox.publish.rabbitmq.properties import encoded
from pillarbox.publish.rabbitmq.refusals import reason_of
from pillarbox.testing.conformance.publisher_world import message, messages

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=80), st.integers(1, 20))
def test_each_tag_is_answered_once_whatever_order_confirms_come_in(
    confirms: list[tuple[int, bool]], burst: int
) -> None:
    """Against the obvious model: a dictionary of tags in flight."""
    ledger, model, sent = Ledger(), dict[int, int](), 0
    for tag, multiple in confirms:
        for _ in range(burst if sent < 60 else 0):
            sent += 1
            assert ledger.sent(sent + 1_000) == sent
            model[sent] = sent + 1_000
        answered = sorted(one for one in model if (one <= tag if multiple else one == tag))
        if tag > sent:
            answered = []  # a broker never confirms what was not sent; if it did, it would be ignored
        assert ledger.answered(tag, multiple=multiple) == [model.pop(one) for one in answered]
        assert ledger.in_flight == len(model)
        assert ledger.unanswered() == list(model.values())


@given(event_type=text, key=st.none() | text, kind=st.none() | text, content_type=text, header=text, value=text)
def test_properties_are_encoded_as_pika_would(
    event_type: str, key: str | None, kind: str | None, content_type: str, header: str, value: str
) -> None:
    one = message(Topic("t"), event_type=event_type, key=key, aggregate_type=kind, content_type=content_type)
    one = one._replace(headers=json.dumps({f"x-{header}": value}))
    headers = dict(to_headers(one)) | ({} if key is None else {KEY: key})
    pika = BasicProperties(
        content_type=content_type,
        headers=headers,
        delivery_mode=2,
        message_id=one.event_id,
        timestamp=int(one.occurred_at.timestamp()),
        type=event_type,
    )
    if any(len(part.encode()) > 255 for part in (event_type, content_type, *headers)):
        return
    assert encoded(one) == b"".join(pika.encode())


@pytest.mark.parametrize("size", [0, 1, 91, 92, 93, 184, 185, 1_000])
def test_a_publish_is_framed_as_pika_would(size: int) -> None:
    """A frame takes 92 bytes of the body here."""
    one = message(Topic("things"), payload=b"x" * size)
    properties = BasicProperties(message_id=one.event_id)
    connection = object.__new__(CorkedConnection)
    connection.bytes_sent = connection.frames_sent = 0
    connection._body_max_length = 92
    written: list[bytes] = []
    connection._transport = SimpleNamespace(write=written.append)
    connection._send_message(
        7, spec.Basic.Publish(exchange="things", routing_key="k", mandatory=True), (properties, one.payload)
    )
    as_bytes = b"".join(properties.encode())
    assert b"".join(publish_frames(7, "things", "k", as_bytes, one.payload, 100)) == b"".join(written)


def test_an_exchange_without_place_in_a_frame_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ShortStringTooLong):
        publish_frames(1, "e" * 256, "k", b"", b"", 100)


def test_what_the_properties_carry_is_the_message_again() -> None:
    one = message(Topic("queue"), headers='{"trace":"ünï"}', key="k", schema_version=9)
    read = BasicProperties()
    read.decode(encoded(one))
    assert (read.message_id, read.type, read.delivery_mode) == (one.event_id, one.event_type, 2)
    assert datetime.fromtimestamp(read.timestamp, UTC) == one.occurred_at.replace(microsecond=0)
    assert from_wire(read.headers, one.payload, source="queue", key=None) == one


def test_the_first_outcome_of_a_message_stands() -> None:
    batch = Batch(messages(Topic("t"), 3))
    batch.confirm((0, 1), Confirmed())
    batch.fail_rest(Unknown("late", destination_healthy=False))
    batch.fail_rest(Confirmed())
    assert batch.finished
    assert [type(outcome) for outcome in batch.outcomes()] == [Confirmed, Confirmed, Unknown]


def test_a_batch_that_nobody_answered_is_unknown() -> None:
    batch = Batch(messages(Topic("t"), 2))
    assert not batch.wait(0)
    assert {type(outcome) for outcome in batch.outcomes()} == {Unknown}


def test_frames_written_together_reach_the_transport_as_one() -> None:
    """Pins the hook of pika that it hangs on: without it, publishing would silently take twice as long."""
    connection = object.__new__(CorkedConnection)
    connection.bytes_sent = connection.frames_sent = 0
    written: list[bytes] = []
    connection._transport = SimpleNamespace(write=written.append)
    with connection.corked():
        connection._output_marshaled_frames([b"method", b"header"])
        connection._output_marshaled_frames([b"body"])
    connection._output_marshaled_frames([b"later"])
    assert written == [b"methodheaderbody", b"later"]


def test_the_reason_of_a_failed_connection_is_the_innermost_one() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    failed = AMQPConnectionWorkflowFailed(
        [AMQPConnectorTransportSetupError(OSError()), AMQPConnectorSocketConnectError(refused)]
    )
    assert reason_of(AMQPConnectionError(failed)) == "ConnectionRefusedError: [Errno 111] Connection refused"
