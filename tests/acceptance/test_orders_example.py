"""The example of orders and stock, as its README starts it: real services, killed under load, and then the balance."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_documentation import ROOT

from .processes import environment


def test_orders_and_stock_agree_after_kills(
    mysql_url: str, postgres_url: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    """150 orders, some without stock, some that fail in their own transaction, and each process is killed."""
    places = {"ORDERS_DATABASE": mysql_url, "STOCK_DATABASE": postgres_url, "ORDERS_BROKER": rabbitmq_url}
    load = ["--orders", "150", "--rate", "25", "--short", "0.2", "--refused", "0.1"]
    fire = ["--kills", "3", "--kill-every", "1.5"]
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", *load, *fire, "--out", str(tmp_path)],
        cwd=ROOT,
        env=environment({**os.environ, **places}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    found = {name.strip(): value for name, value in re.findall(r"^(.+?) {2,}([\d.]+)$", done.stdout, re.MULTILINE)}
    assert done.returncode == 0, done.stdout + done.stderr
    assert (found["ghosts"], found["lost"], found["reserved twice"], found["wrong in another way"]) == ("0",) * 4
    accepted, refused = int(found["orders accepted"]), int(found["refused by their own transaction (voucher)"])
    cancelled = int(found["cancelled, no stock"])
    assert accepted + refused == 150
    assert refused > 0
    assert cancelled > 0
    assert int(found["confirmed"]) + cancelled == accepted
    assert {found[f"kill -9 of {name}"] for name in ("orders", "decisions", "stock")} == {"1"}
    assert "<polyline" in (tmp_path / "backlog.svg").read_text()
