"""The fault proxy against a real server over loopback: each way in which it breaks a connection, and that it heals."""

import asyncio
import gc
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from pillarbox.errors import CannotListen, ProxyClosed
from pillarbox.lab.link import Link
from pillarbox.lab.proxy import FaultProxy, fault_proxy

SOON = 2.0  # seconds in which what must happen happens
NEVER = 0.1  # seconds for which what must not happen is waited for


class Echo:
    """Answers every byte with itself, and keeps what it heard and how each connection ended."""

    def __init__(self) -> None:
        self.heard = b""
        self.ends: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65_536):
                    self.heard += data
                    connection.sendall(data)
                self.ends.append("closed")
            except OSError:
                self.ends.append("reset")

    def close(self) -> None:
        with suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with fault_proxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@pytest.fixture
def connect(proxy: FaultProxy) -> Iterator[Callable[..., socket.socket]]:
    opened: list[socket.socket] = []

    def connect(timeout: float = SOON) -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", proxy.port), timeout))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., socket.socket]) -> socket.socket:
    """A connection that has been used already."""
    client = connect()
    assert ask(client, b"hello") == b"hello"
    return client


def ask(client: socket.socket, data: bytes) -> bytes:
    """Send, and wait for as many bytes as were sent."""
    client.sendall(data)
    return receive(client, len(data))


def receive(client: socket.socket, count: int) -> bytes:
    answer = b""
    while len(answer) < count and (piece := client.recv(count - len(answer))):
        answer += piece
    return answer


def is_silent(client: socket.socket) -> bool:
    """Nothing comes, neither a byte nor an end."""
    client.settimeout(NEVER)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(SOON)
    return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_large_answer_passes_whole_and_both_directions_are_counted(
    proxy: FaultProxy, connect: Callable[..., socket.socket]
) -> None:
    client, data = connect(), bytes(range(256)) * 4_000
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert receive(client, len(data)) == data
    sender.join()
    assert (proxy.sent, proxy.answered, proxy.lost) == (len(data), len(data), 0)


def test_a_client_that_only_stops_sending_still_gets_its_answer(client: socket.socket, echo: Echo) -> None:
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert receive(client, 100) == b"last words"
    until(lambda: echo.ends == ["closed"])


def test_a_cut_resets_both_sides_and_lets_new_connections_in(
    client: socket.socket, proxy: FaultProxy, echo: Echo, connect: Callable[..., socket.socket]
) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    until(lambda: echo.ends == ["reset"])
    until(lambda: proxy.connections == 0)
    assert ask(connect(), b"again") == b"again"


def test_a_reset_by_the_server_reaches_the_client_as_a_reset(connect: Callable[..., socket.socket], echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionResetError):
        connect().recv(1)


def test_requests_are_cut_at_a_byte_and_all_before_it_arrive(
    client: socket.socket, proxy: FaultProxy, echo: Echo, connect: Callable[..., socket.socket]
) -> None:
    proxy.cut_after(3)
    client.sendall(b"abcdef")
    with pytest.raises(ConnectionResetError):
        receive(client, 100)
    until(lambda: echo.ends == ["reset"])
    assert echo.heard == b"helloabc"
    assert ask(connect(), b"abcdef") == b"abcdef"  # once


def test_answers_are_cut_at_a_byte_and_all_before_it_arrive(
    client: socket.socket, proxy: FaultProxy, echo: Echo
) -> None:
    proxy.cut_after(4, answers=True)
    client.sendall(b"abcdef")
    assert receive(client, 4) == b"abcd"
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert echo.heard == b"helloabcdef"


def test_a_cut_after_no_byte_lets_the_next_one_reach_nobody(
    client: socket.socket, proxy: FaultProxy, echo: Echo
) -> None:
    proxy.cut_after(0)
    assert is_silent(client)
    client.sendall(b"x")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert echo.heard == b"hello"


def test_lost_answers_leave_the_request_done_and_the_client_waiting(
    client: socket.socket, proxy: FaultProxy, echo: Echo, connect: Callable[..., socket.socket]
) -> None:
    proxy.lose_answers()
    client.sendall(b"order")
    until(lambda: proxy.lost == len(b"order"))
    assert echo.heard == b"helloorder"
    assert is_silent(client)
    proxy.heal()
    with pytest.raises(ConnectionResetError):  # its stream has a hole
        client.recv(1)
    assert ask(connect(), b"again") == b"again"


def test_healing_spares_a_connection_of_which_nothing_was_lost(client: socket.socket, proxy: FaultProxy) -> None:
    proxy.lose_answers()
    proxy.heal()
    assert ask(client, b"still") == b"still"


def test_half_open_ends_the_server_and_tells_the_client_nothing(
    client: socket.socket, proxy: FaultProxy, echo: Echo, connect: Callable[..., socket.socket]
) -> None:
    proxy.half_open()
    until(lambda: echo.ends == ["closed"])
    client.sendall(b"into the void")
    assert is_silent(client)
    assert echo.heard == b"hello"
    assert ask(connect(), b"new") == b"new"
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_frozen_connections_stay_open_and_hold_everything_up(
    client: socket.socket, proxy: FaultProxy, echo: Echo, connect: Callable[..., socket.socket]
) -> None:
    proxy.freeze()
    client.sendall(b"held")
    newcomer = connect()
    newcomer.sendall(b"too")
    assert is_silent(client)
    assert is_silent(newcomer)
    assert echo.heard == b"hello"
    proxy.thaw()
    assert receive(client, 4) == b"held"
    assert receive(newcomer, 3) == b"too"


def test_a_frozen_link_does_not_tell_that_one_side_has_closed(
    client: socket.socket, proxy: FaultProxy, echo: Echo
) -> None:
    proxy.freeze()
    client.close()
    time.sleep(NEVER)
    assert echo.ends == []
    proxy.thaw()
    until(lambda: echo.ends == ["closed"])


def test_what_is_held_up_is_bounded_and_the_sender_has_to_wait(client: socket.socket, proxy: FaultProxy) -> None:
    proxy.freeze()
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.sendall(b"x" * 64_000_000)


def test_a_cut_ends_frozen_connections_at_once(client: socket.socket, proxy: FaultProxy, echo: Echo) -> None:
    proxy.freeze()
    client.sendall(b"held")
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    until(lambda: echo.ends == ["reset"])


def test_a_delay_counts_in_both_directions(client: socket.socket, proxy: FaultProxy) -> None:
    proxy.delay(0.1)
    begin = time.monotonic()
    assert ask(client, b"slow") == b"slow"
    assert time.monotonic() - begin >= 0.2
    proxy.heal()
    assert ask(client, b"quick") == b"quick"


def test_a_black_hole_lets_nobody_connect_and_leaves_open_connections_alone(
    client: socket.socket, proxy: FaultProxy, connect: Callable[..., socket.socket]
) -> None:
    proxy.blackhole()
    with pytest.raises(TimeoutError):
        connect(NEVER)
    assert ask(client, b"still") == b"still"
    proxy.heal()
    assert ask(connect(), b"again") == b"again"
    assert proxy.connections == 2


def test_refusing_resets_what_is_open_and_what_comes(
    client: socket.socket, proxy: FaultProxy, connect: Callable[..., socket.socket]
) -> None:
    proxy.refuse()
    for broken in (lambda: client, connect):
        with pytest.raises(ConnectionResetError):
            broken().recv(1)
    proxy.heal()
    assert ask(connect(), b"again") == b"again"


def test_the_proxy_can_speak_for_the_server(client: socket.socket, proxy: FaultProxy, echo: Echo) -> None:
    proxy.say(b"unasked")
    assert receive(client, 7) == b"unasked"
    assert echo.heard == b"hello"


def test_a_chosen_port_is_listened_on_and_a_taken_one_is_an_error_with_its_name(echo: Echo) -> None:
    with pytest.raises(CannotListen, match=str(echo.port)):
        FaultProxy("127.0.0.1", 1, listen_on=echo.port)
    with fault_proxy("127.0.0.1", echo.port) as first:
        port = first.port
    with fault_proxy("127.0.0.1", echo.port, listen_on=port) as second:
        assert second.port == port


def test_a_closed_proxy_refuses_orders_instead_of_ignoring_them(proxy: FaultProxy) -> None:
    proxy.close()
    proxy.close()
    with pytest.raises(ProxyClosed):
        proxy.cut()


def test_many_threads_may_break_and_use_it_at_once(proxy: FaultProxy) -> None:
    def use() -> None:
        for _ in range(20):
            with suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port), SOON) as client:
                client.settimeout(SOON)
                ask(client, b"x" * 1_000)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        proxy.cut()
        proxy.lose_answers()
        proxy.half_open()
        proxy.heal()
    until(lambda: proxy.connections == 0)


@pytest.mark.parametrize("fault", ["freeze", "lose_answers", "half_open", "blackhole", "refuse", "cut"])
def test_closing_in_the_middle_of_a_fault_leaves_no_thread_no_socket_and_no_warning(fault: str, echo: Echo) -> None:
    threads = threading.active_count() - 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        proxy = FaultProxy("127.0.0.1", echo.port)
        with socket.create_connection(("127.0.0.1", proxy.port), SOON) as client:
            client.settimeout(SOON)
            ask(client, b"hello")
            getattr(proxy, fault)()
            with suppress(OSError):
                client.sendall(b"more")
            proxy.close()
            with suppress(OSError):
                client.recv(1)
        gc.collect()
    until(lambda: threading.active_count() <= threads + 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), SOON)


@pytest.mark.parametrize("steps", range(8))
def test_a_connection_that_is_cut_at_any_step_of_its_opening_leaves_nothing_behind(echo: Echo, steps: int) -> None:
    wrong: list[dict[str, object]] = []

    async def open_and_cut() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: wrong.append(context))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            accepted = listener.accept()[0]
            accepted.setblocking(False)
            link = Link(accepted)
            link.task = loop.create_task(opening(link))
            for _ in range(steps):
                await asyncio.sleep(0)
            link.cut()
            await asyncio.gather(link.task, return_exceptions=True)  # at no step it has not even begun
            client.settimeout(SOON)
            with client, pytest.raises(ConnectionResetError):
                await asyncio.to_thread(client.recv, 1)

    async def opening(link: Link) -> None:
        with suppress(asyncio.CancelledError):
            await link.connect("127.0.0.1", echo.port)
        link.reset()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(open_and_cut())
        gc.collect()
    assert wrong == []
