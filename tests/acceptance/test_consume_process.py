"""`pillarbox consume module:consumer` as a real process."""

import signal
import textwrap

import pytest

from .events import Shop
from .processes import Cli

MODULE = """
    import time
    from pillarbox import Consumer, Received

    consumer = Consumer("stock", database={database!r}, broker={broker!r}, sources=["orders"], drain={drain})

    @consumer.on("order.created")
    def reserve(event: Received) -> None:
        print("applied", event.payload["n"], flush=True)
        time.sleep({seconds})
"""


def module(cli: Cli, shop: Shop, *, seconds: float = 0, drain: float = 10) -> None:
    text = MODULE.format(database=shop.database, broker=shop.broker, seconds=seconds, drain=drain)
    (cli.folder / "stock.py").write_text(textwrap.dedent(text), encoding="utf-8")


def test_a_consumer_applies_what_the_relay_sent_and_ends_on_a_signal(cli: Cli, shop: Shop) -> None:
    module(cli, shop)
    shop.place(20)
    assert cli.run("relay", "--until-empty", env=shop.env).code == 0
    with cli.started("consume", "stock:consumer", "--json") as consumer:
        consumer.until(lambda: shop.rows("SELECT COUNT(*) FROM inbox_event WHERE consumer = 'stock'") == [(20,)])
        consumer.process.send_signal(signal.SIGTERM)
        ended = consumer.ended()
    assert ended.code == 0, ended.err
    assert '"applied": 20' in ended.out
    ended.says("consumer stock: reading orders")


def test_a_handler_that_takes_too_long_is_rolled_back_and_the_exit_code_says_so(cli: Cli, shop: Shop) -> None:
    module(cli, shop, seconds=30, drain=0.3)
    shop.place(1)
    assert cli.run("relay", "--until-empty", env=shop.env).code == 0
    with cli.started("consume", "stock:consumer") as consumer:
        consumer.until(lambda: "applied 0" in consumer.out)
        consumer.process.send_signal(signal.SIGTERM)
        ended = consumer.ended()
    assert ended.code == 1
    ended.says("rolled back")
    assert shop.rows("SELECT COUNT(*) FROM inbox_event") == [(0,)]


def test_a_thread_that_a_handler_left_does_not_keep_the_process(cli: Cli, shop: Shop) -> None:
    module(cli, shop)
    text = (cli.folder / "stock.py").read_text(encoding="utf-8")
    text += "    import threading\n    threading.Thread(target=time.sleep, args=(600,), name='left').start()\n"
    text += "import pillarbox.cli.commands.consume as command\ncommand._WAIT_FOR_THREADS = 0.2\n"
    (cli.folder / "stock.py").write_text(text, encoding="utf-8")
    shop.place(1)
    assert cli.run("relay", "--until-empty", env=shop.env).code == 0
    with cli.started("consume", "stock:consumer") as consumer:
        consumer.until(lambda: "applied 0" in consumer.out)
        consumer.process.send_signal(signal.SIGTERM)
        ended = consumer.ended()
    assert ended.code == 0
    ended.says("still run and are left: left", "applied 1")


@pytest.mark.parametrize(
    ("database", "code", "error"),
    [("sqlite:///empty.db", 5, "[PB-006]"), ("mysql://u@127.0.0.1:1/x", 4, "[PB-004]"), ("nonsense", 3, "[PB-002]")],
)
def test_what_is_wrong_at_the_start_is_said_in_a_sentence(cli: Cli, database: str, code: int, error: str) -> None:
    module(cli, Shop(database, f"embedded:///{cli.folder / 'log.db'}"))
    refused = cli.run("consume", "stock:consumer")
    assert refused.code == code, refused.err
    refused.says(error)
