"""A process that pays over HTTP, killed with SIGKILL at each point: the provider's charges are counted.

With a provider that is idempotent, the same key again; with one that is not, a look-up by the order's own number, or
a person. Each of these charges once, wherever the process died. The wrong choice charges twice, which shows that the
kills hit where it hurts.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from pillarbox.effects import idempotency_key
from pillarbox.ops.effects import Verdict, in_doubt, resolve
from pillarbox.store.engines import relay_engine
from pillarbox.store.install import install
from tests.crash.paying import SET_ASIDE, Delivery
from tests.payment_server import Bank, payment_server
from tests.servers import fresh_database
from tests.services_fixtures import _need

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = "in flight"  # charged, the answer has not arrived
BEFORE = ["effect.before-start", "effect.started"]
CHARGED = [IN_FLIGHT, "effect.called"]
AFTER = ["effect.done", "consumer.after-handler", "consumer.after-commit"]
POINTS = [*BEFORE, *CHARGED, *AFTER]
_numbers = itertools.count(1)


class Billing:
    """A database on one server, and both kinds of provider."""

    def __init__(self, database: str, effects: str, banks: dict[bool, Bank]) -> None:
        self.database, self.effects, self.banks = database, effects, banks

    def engine(self) -> Engine:
        return relay_engine(self.effects)

    def paid(self, event_id: str) -> list[int]:
        engine = relay_engine(self.database)
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT receipt FROM paid WHERE event_id = :id"), {"id": event_id})
            found = [int(row[0]) for row in rows]
        engine.dispose()
        return found


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.close()


@pytest.fixture(scope="module")
def banks() -> Iterator[dict[bool, Bank]]:
    with payment_server(idempotent=True) as with_keys, payment_server(idempotent=False) as without:
        yield {True: with_keys, False: without}


@pytest.fixture(scope="module")
def places(
    request: pytest.FixtureRequest, banks: dict[bool, Bank], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Billing]]:
    """One database a server, made when first asked for. On SQLite the effects have a file of their own."""
    made: dict[str, Billing] = {}
    with ExitStack() as stack:

        def place(name: str) -> Billing:
            if name not in made:
                folder = tmp_path_factory.mktemp("billing")
                url = f"sqlite:///{folder / 'billing.db'}"
                if name != "sqlite":
                    url = stack.enter_context(fresh_database(_need(request, name).url))
                effects = f"sqlite:///{folder / 'effects.db'}" if name == "sqlite" else url
                for one in {url, effects}:
                    engine = relay_engine(one)
                    install(engine, ["inbox"])
                    engine.dispose()
                engine = relay_engine(url)
                with engine.begin() as connection:
                    connection.execute(text("CREATE TABLE paid (event_id VARCHAR(100), receipt INTEGER)"))
                engine.dispose()
                made[name] = Billing(url, effects, banks)
            return made[name]

        yield place


CHOICES = [
    pytest.param("postgres", "same key", True, marks=pytest.mark.services),
    pytest.param("postgres", "lookup", False, marks=[pytest.mark.services, pytest.mark.long]),
    pytest.param("mysql", "lookup", False, marks=pytest.mark.services),
    pytest.param("sqlite", "same key", True, marks=pytest.mark.long),
]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("server", "choice", "idempotent"), CHOICES)
def test_a_payment_is_made_once_wherever_the_process_dies(
    places: Callable[[str], Billing], processes: Processes, server: str, choice: str, idempotent: bool, point: str
) -> None:
    billing, event_id = places(server), f"order-{next(_numbers)}"
    bank = billing.banks[idempotent]
    delivery = Delivery(billing.database, billing.effects, bank.url, event_id, choice)
    processes.kill(delivery, point, bank)
    assert len(bank.charges(event_id)) == (0 if point in BEFORE else 1)
    assert processes.run(delivery) == 0
    assert len(bank.charges(event_id)) == 1
    assert billing.paid(event_id) == [bank.charges(event_id)[0]["id"]]
    assert processes.run(delivery) == 0  # a third time
    assert len(bank.charges(event_id)) == len(billing.paid(event_id)) == 1


@pytest.mark.services
@pytest.mark.parametrize("server", ["postgres", "mysql"])
@pytest.mark.parametrize("point", ["effect.started", IN_FLIGHT])
def test_an_effect_in_doubt_waits_for_a_person_and_goes_on_with_the_verdict(
    places: Callable[[str], Billing], processes: Processes, server: str, point: str
) -> None:
    """C088"""
    billing, event_id = places(server), f"order-{next(_numbers)}"
    bank = billing.banks[False]
    delivery = Delivery(billing.database, billing.effects, bank.url, event_id, "ask")
    processes.kill(delivery, point, bank)
    assert [processes.run(delivery), processes.run(delivery)] == [SET_ASIDE, SET_ASIDE]
    charged = bank.charges(event_id)
    assert (len(charged), billing.paid(event_id)) == (0 if point in BEFORE else 1, [])
    engine, effect_id = billing.engine(), idempotency_key("billing", event_id, "charge")
    answer = json.dumps({"id": charged[0]["id"]}) if charged else None
    verdict = Verdict("done" if charged else "not_done", "anna", "looked at the provider's page", answer)
    with engine.begin() as connection:
        assert effect_id in [one.id for one in in_doubt(connection)]
        resolve(connection, effect_id, verdict)
    engine.dispose()
    assert processes.run(delivery) == 0
    assert len(bank.charges(event_id)) == len(billing.paid(event_id)) == 1


@pytest.mark.services
@pytest.mark.parametrize("point", CHARGED)
def test_the_same_key_charges_twice_where_the_provider_ignores_it(
    places: Callable[[str], Billing], processes: Processes, point: str
) -> None:
    """What `SAME_KEY` costs at a provider without idempotency: the documentation says so."""
    billing, event_id = places("postgres"), f"order-{next(_numbers)}"
    bank = billing.banks[False]
    delivery = Delivery(billing.database, billing.effects, bank.url, event_id, "same key")
    processes.kill(delivery, point, bank)
    assert processes.run(delivery) == 0
    assert len(bank.charges(event_id)) == 2


class Processes:
    """Runs each delivery in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.paying"]
        self._parent = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, delivery: Delivery) -> int:
        """The process's number."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(delivery.as_text() + "\n")
        self._parent.stdin.flush()
        return self._line()

    def end(self) -> int:
        """How it ended."""
        return self._line()

    def run(self, delivery: Delivery) -> int:
        self.start(delivery)
        return self.end()

    def kill(self, delivery: Delivery, point: str, bank: Bank) -> None:
        """Deliver, and let the process be killed there."""
        held = point == IN_FLIGHT
        pid = self.start(replace(delivery, hold=held, kill_at="" if held else point))
        if held:
            until = time.monotonic() + 30
            while not bank.charges(delivery.event_id):
                assert time.monotonic() < until
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
        assert self.end() == -signal.SIGKILL, f"it never came to {point}"

    def close(self) -> None:
        self._parent.kill()
        self._parent.wait(10)
        for stream in (self._parent.stdin, self._parent.stdout):
            assert stream is not None
            stream.close()

    def _line(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())
