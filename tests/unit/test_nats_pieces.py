"""The pieces of NATS that decide without a server: headers, subjects, URLs, the line of messages, verdicts, names."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.consume.nats.holding import Delivery, Holding
from pillarbox.consume.nats.names import dead_subject, durable_of, retry_subject
from pillarbox.consume.nats.sidestreams import fitting
from pillarbox.consume.sources import may_reach
from pillarbox.errors import BadUrl
from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed, Rejected, Unavailable, Unknown, Withheld
from pillarbox.publish.nats.headers import parse, read, size_of, written
from pillarbox.publish.nats.line import Flight, Line, Place
from pillarbox.publish.nats.url import parse_nats_url
from pillarbox.publish.nats.verdicts import verdict
from pillarbox.publish.subjects import takes, why_not
from pillarbox.testing.conformance.publisher_world import messages

THERE = Topic("there")
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


# Headers --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(text.filter(bool), text), max_size=5, unique_by=lambda header: header[0]))
def test_whatever_headers_there_are_come_out_as_they_went_in(headers: list[tuple[str, str]]) -> None:
    wire = written(headers)
    block = b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in wire.items()) + b"\r\n"
    assert len(block) == size_of(wire)
    assert read(parse(block)) == dict(headers)
    assert not [name for name in wire if name.lower().startswith("nats-")]
    assert all(re.fullmatch(r"[!-9;-~]+", name) for name in wire)


def test_plain_headers_travel_as_they_are_and_the_servers_own_are_not_ours() -> None:
    plain = [("id", "7"), ("trace", "ünï-☃"), ("empty", "")]
    assert written(plain) == dict(plain)
    assert read({"id": "7", "Nats-Msg-Id": "7:orders", "Nats-Stream": "ORDERS"}) == {"id": "7"}
    assert read(None) == {}
    assert read({"a%20b": "c%20d"}) == {"a%20b": "c%20d"}  # of a foreign message, which escaped nothing


# Subjects -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "subject", "taken"),
    [
        ("a", "a", True),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
    ],
)
def test_a_pattern_takes_what_the_server_would_give_it(pattern: str, subject: str, taken: bool) -> None:
    assert takes(pattern, subject) is taken


@pytest.mark.parametrize("subject", ["", "$SYS.x", "a b", "a\tb", "a\n", "a..b", ".a", "a.", "*", "a.>", "x" * 1_001])
def test_what_is_no_subject_is_told(subject: str) -> None:
    assert why_not(subject)


def test_a_consumer_knows_which_subjects_surely_do_not_reach_it() -> None:
    assert may_reach("nats://h", "orders.created", ["orders.*"])
    assert may_reach("nats://h", "orders", ["orders.created"])  # the rest may be the routing key
    assert not may_reach("nats://h", "payments", ["orders.>"])
    assert may_reach("amqp://h", "anything", ["queue"])
    assert not may_reach("kafka://h", "orders.created", ["orders.*"])


@pytest.mark.parametrize("source", ["orders", "orders.eu", "orders.*.paid", "a%b.>", "ü.☃"])
def test_a_consumers_own_names_are_allowed_at_the_server_and_no_two_are_the_same(source: str) -> None:
    for subject in (dead_subject(source, "stock.v2"), retry_subject(source, "stock.v2")):
        assert why_not(subject) is None
    assert not {".", "*", ">", "/", " "} & set(durable_of("stock.v2", source))
    assert durable_of("a.b", source) != durable_of("a%2Eb", source)
    assert len({dead_subject(one, "c") for one in (source, "orders.%2A", "x")}) == 3


# URLs -----------------------------------------------------------------------------------------------------------------


def test_a_url_names_servers_a_user_and_a_stream() -> None:
    url = parse_nats_url("nats://re%40lay:p%2Fw@a,b:5222,[::1]:6222?stream=ORDERS&deduplicate=no")
    assert url.hosts == (("a", 4222), ("b", 5222), ("::1", 6222))
    assert (url.user, url.password, url.token, url.stream, url.deduplicate) == ("re@lay", "p/w", None, "ORDERS", False)
    assert [url.address(n) for n in range(4)] == [
        "nats://a:4222",
        "nats://b:5222",
        "nats://[::1]:6222",
        "nats://a:4222",
    ]
    assert "p/w" not in url.shown
    assert parse_nats_url("nats://t0ken@a").token == "t0ken"
    assert parse_nats_url("nats://a").tls is None
    assert parse_nats_url("nats://a?verify=no").tls is not None


@pytest.mark.parametrize(
    "url",
    [
        "nats://",
        "nats://a/path",
        "nats://a?streem=x",
        "nats://a?stream=a.b",
        "nats://a?tls=maybe",
        "nats://a?ca=/nowhere",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(BadUrl, match="PB-002"):
        parse_nats_url(url)


# Verdicts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "err_code": 10054, "description": "message size exceeds maximum allowed"}, Rejected),
        ({"code": 400, "err_code": 10060, "description": "expected stream does not match"}, Rejected),
        ({"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}, Unavailable),
        ({"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}, Unavailable),
        ({"code": 400, "err_code": 10002, "description": "resource limits exceeded for account"}, Unavailable),
        ({"code": 409, "err_code": 10158, "description": "message id is being processed"}, Unknown),
        ({}, Rejected),
    ],
)
def test_each_refusal_has_its_class(error: dict[str, object], kind: type) -> None:
    outcome = verdict({"error": error}, "orders")
    assert type(outcome) is kind
    assert getattr(outcome, "permanent", False) is (error.get("err_code") == 10054)


def test_an_answer_that_is_no_acknowledgement_confirms_nothing() -> None:
    assert isinstance(verdict({}, "orders"), Unknown)
    assert isinstance(verdict({"error": "?"}, "orders"), Unknown)


# The line -------------------------------------------------------------------------------------------------------------


def sent(line: Line) -> list[Place]:
    return list(iter(line.next_one, None))


def test_of_each_stream_one_is_under_way_and_the_next_call_stands_behind_it() -> None:
    line, first, second = Line(), *(Flight(messages(THERE, 6, keys=3), ordered=True) for _ in range(2))
    line.begin(first)
    line.begin(second)
    under_way = sent(line)
    assert [place.at for place in under_way] == [0, 1, 2]
    for _ in range(3):
        for place in under_way:
            line.confirm(place, Confirmed(None, 1))
        under_way = sent(line)
        assert len(under_way) == 3
    assert first.done.is_set()
    assert not second.done.is_set()
    for place in under_way:
        line.confirm(place, Confirmed(None, 1))
    assert second.done.is_set()


def test_a_failure_takes_its_stream_along_in_all_calls_that_do_not_know_of_it_yet() -> None:
    line = Line()
    flights = [Flight(messages(THERE, 4, keys=2), ordered=True) for _ in range(3)]
    line.begin(flights[0])
    line.begin(flights[1])
    bad, good = sent(line)
    line.fail(bad, Rejected("no", permanent=True))
    line.begin(flights[2])  # the first call has not ended: its caller cannot know
    assert [type(one) for one in flights[0].outcomes] == [Rejected, type(None), Withheld, type(None)]
    for flight in flights[1:]:
        assert [type(one) for one in flight.outcomes] == [Withheld, type(None), Withheld, type(None)]
    while good is not None:
        line.confirm(good, Confirmed(None, 1))
        good = line.next_one()  # type: ignore[assignment]
    assert all(flight.done.is_set() for flight in flights)
    assert bad.message.event_id in str(flights[2].outcomes[0])


def test_when_time_is_over_what_was_not_sent_says_so_and_what_is_under_way_is_waited_for() -> None:
    line, first, second = Line(), *(Flight(messages(THERE, 4, keys=1), ordered=True) for _ in range(2))
    line.begin(first)
    line.begin(second)
    (head,) = sent(line)
    line.send_no_more(first)
    assert Counter(type(one) for one in first.outcomes) == {type(None): 1, Withheld: 3}
    assert {type(one) for one in second.outcomes} == {Withheld}
    line.confirm(head, Confirmed(None, 1))
    assert first.done.is_set()
    assert second.done.is_set()
    assert line.next_one() is None


def test_the_rest_of_a_call_fails_by_what_became_of_it() -> None:
    line, flight = Line(), Flight(messages(THERE, 6, keys=3), ordered=True)
    line.begin(flight)
    head = line.next_one()
    assert head is not None
    line.fail(head, Unknown("?", destination_healthy=False))
    line.fail_rest(flight, Unavailable("!"))
    assert [type(one) for one in flight.outcomes] == [Unknown, Unavailable, Unavailable, Withheld, Withheld, Withheld]
    assert flight.done.is_set()
    line.begin(again := Flight(flight.messages, ordered=True))
    assert len(sent(line)) == 3
    assert not again.done.is_set()


@given(st.data())
def test_whatever_happens_nothing_of_a_stream_is_confirmed_behind_what_is_not(data: st.DataObject) -> None:
    line, flights, under_way = Line(), [], list[Place]()
    arrived: list[Place] = []
    for _ in range(data.draw(st.integers(1, 4))):
        flights.append(Flight(messages(THERE, data.draw(st.integers(1, 12)), keys=3), ordered=True))
        line.begin(flights[-1])
        for _ in range(data.draw(st.integers(0, 12))):
            if (place := line.next_one()) is not None:
                under_way.append(place)
            if not under_way:
                break
            place = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            if data.draw(st.integers(0, 4)):
                line.confirm(place, Confirmed(None, 1))
                arrived.append(place)
            else:
                line.fail(place, Unknown("?", destination_healthy=False))
    for flight in flights:
        line.fail_rest(flight, Unavailable("!"))
    assert all(flight.done.is_set() and flight.left == 0 for flight in flights)
    known = 0  # what a caller knows of, it sends again: calls that ended before another began
    for key in {place.message.key for place in arrived}:
        for flight in flights[known:]:
            outcomes = [one for one, m in zip(flight.outcomes, flight.messages, strict=True) if m.key == key]
            kinds = [isinstance(one, Confirmed) for one in outcomes]
            assert kinds == sorted(kinds, reverse=True)


# Holding and copies ---------------------------------------------------------------------------------------------------


def test_what_the_server_did_not_hear_of_in_time_is_not_held_any_more() -> None:
    now = [0.0]
    holding, one, two = Holding(lambda: now[0]), Delivery("S", "d", 2, "r2"), Delivery("S", "d", 1, "r1")
    holding.take(one, 10.0)
    holding.take(two, 10.0)
    now[0] = 6.0
    holding.extend([one], since=5.0)
    now[0] = 11.0
    assert (holding.holds(one), holding.holds(two)) == (True, False)
    assert (holding.all(), len(holding)) == ([one], 1)
    holding.release(one)
    assert not holding.holds(one)


def test_headers_that_find_no_room_in_a_copy_are_left_out_and_named() -> None:
    headers, added = {"small": "s", "large": "x" * 500}, {"retryAttempts": "1", "retryReason": "y" * 300}
    assert set(fitting(headers, added, 2_000)) == {*headers, *added}
    assert set(fitting(headers, added, 700)) == {*headers, "retryAttempts"}
    assert fitting(headers, added, 300) == {"small": "s", "retryAttempts": "1", "deadLetterLeftOut": "large"}
