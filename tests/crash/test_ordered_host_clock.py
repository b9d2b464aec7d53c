"""Relays on machines whose clocks are an hour off, in either direction: the database's clock alone decides."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.policy.lanes import PARTITIONS
from services.apt import unpack
from services.place import Place
from tests.crash.ordered_lab import Lab, wait_until


@pytest.fixture(scope="session")
def library() -> Path:
    """Debian's libfaketime, unpacked into the cache of downloads: nothing has to be installed."""
    return next(unpack(Place.of_checkout(), ["libfaketime"], "libfaketime").rglob("libfaketimeMT.so.1"))


@pytest.fixture(params=["postgres", pytest.param("mysql", marks=pytest.mark.long)])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(request.getfixturevalue(f"{request.param}_url"), "orders", tmp_path)
    yield lab
    lab.close()


def test_relays_whose_clocks_are_an_hour_off_share_and_take_over_as_ever(lab: Lab, library: Path) -> None:
    broker = f"embedded://{lab.folder / 'log.db'}"

    def relay(name: str, shift: str):  # type: ignore[no-untyped-def]
        env = {"LD_PRELOAD": str(library), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return lab.relay(name, broker, lease=3.0, deadline=1.0, env=env)

    with relay("ahead", "+1h") as ahead, relay("behind", "-1h"):
        with lab.load(0.05):
            wait_until(lambda: lab.owned_by("ahead") == lab.owned_by("behind") == PARTITIONS // 2, 30, "sharing")
            ahead.process.send_signal(signal.SIGKILL)
            wait_until(lambda: lab.owned_by("behind") == PARTITIONS, 3.0 + 5.0, "the takeover")
        wait_until(lambda: lab.waiting() == 0, 20, "the end")
    assert lab.sent() == lab.one("SELECT COUNT(*) FROM outbox_event")
    assert lab.one("SELECT COUNT(*) FROM outbox_parked") == 0
