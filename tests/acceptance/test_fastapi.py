"""The FastAPI example of docs/deployment.md, as it stands there, under a real uvicorn."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_documentation import ROOT, blocks

from .events import Shop
from .processes import environment


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path, shop: Shop, port: int) -> Iterator[subprocess.Popen[bytes]]:
    code = dict(blocks(ROOT / "docs" / "deployment.md"))["file: shop_api.py"]
    (tmp_path / "shop_api.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "shop_api:app",
        "--port",
        str(port),
        "--timeout-graceful-shutdown",
        "10",
    ]
    with (tmp_path / "uvicorn.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(shop.env), stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait(10)


def ask(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, {}
    except (urllib.error.URLError, OSError):
        return 0, {}


def test_orders_are_sent_at_once_and_the_relay_ends_with_the_server(
    server: subprocess.Popen[bytes], shop: Shop, port: int, tmp_path: Path
) -> None:
    until(lambda: ask(port, "/relay")[0] == 200, tmp_path)
    for number in range(20):
        assert ask(port, f"/orders/{number}", "POST")[0] == 200
    until(lambda: shop.rows("SELECT COUNT(*) FROM outbox_receipt") == [(20,)], tmp_path)
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) in (0, -signal.SIGTERM)
    assert shop.rows("SELECT COUNT(*) FROM outbox_relay") == [(0,)]
    assert shop.rows("SELECT COUNT(*) FROM outbox_partition WHERE owner <> ''") == [(0,)]
    assert "Traceback" not in (tmp_path / "uvicorn.log").read_text()


def until(condition: object, folder: Path) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, (folder / "uvicorn.log").read_text()[-3000:]
        time.sleep(0.05)
