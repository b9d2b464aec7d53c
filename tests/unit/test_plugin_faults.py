"""The plugin's fixtures for faults, as pytest gives them to a user's own tests."""

import pytest

pytest_plugins = ["pytester"]

PROXIES = """
import socket, threading
import pytest

opened = []

@pytest.fixture
def server():
    listener = socket.create_server(("127.0.0.1", 0))
    def answer():
        try:
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(connection.recv(100))
        except OSError:
            pass
    thread = threading.Thread(target=answer)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)

def ask(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        client.settimeout(0.2)
        client.sendall(b"pay")
        return client.recv(100)

def test_two_links(fault_proxy, server):
    first, second = fault_proxy("127.0.0.1", server), fault_proxy("127.0.0.1", server)
    opened.extend([first, second])
    assert first.through(f"amqp://shop:pw@127.0.0.1:{server}/x") == f"amqp://shop:pw@127.0.0.1:{first.port}/x"
    first.lose_answers()
    with pytest.raises(TimeoutError):
        ask(first)
    assert first.lost == 3
    assert ask(second) == b"pay"

def test_all_are_closed_when_the_test_is_over():
    for proxy in opened:
        with pytest.raises(ConnectionRefusedError):
            ask(proxy)
"""

EFFECTS = """
from uuid import UUID
from sqlalchemy import Column, MetaData, String, Table, create_engine, insert

payment = Table("payment", MetaData(), Column("event_id", String(36)))
A, B = UUID(int=1), UUID(int=2)

def paid(*ids):
    engine = create_engine("sqlite://")
    connection = engine.connect()
    payment.create(connection)
    connection.execute(insert(payment), [{"event_id": str(one)} for one in ids])
    return connection

def test_once(assert_exactly_once_effect):
    assert_exactly_once_effect(paid(A, B), payment.c.event_id, [A, B])

def test_twice(assert_exactly_once_effect):
    assert_exactly_once_effect(paid(A, A), payment.c.event_id, [A, B])
"""


def test_the_fixture_gives_proxies_and_closes_them_when_the_test_ends(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROXIES)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_the_fixture_says_which_effects_are_missing_and_doubled_without_its_own_lines(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(EFFECTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *AssertionError: 0 of 2 events had their effect exactly once.",
            "E *missing (1): 00000000-0000-0000-0000-000000000002",
            "E *doubled (1): 00000000-0000-0000-0000-000000000001 (2 times)",
        ]
    )
    result.stdout.no_fnmatch_line("*exactly_once.py:*")


def test_the_plugin_loads_nothing_heavy_until_a_fixture_is_used(pytester: pytest.Pytester) -> None:
    """pytest loads it in every run of every project on the machine."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            heavy = ("pillarbox.lab", "pillarbox.testing.recorder", "sqlalchemy")
            assert [name for name in sys.modules if name.startswith(heavy)] == []
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
