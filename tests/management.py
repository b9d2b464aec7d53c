"""RabbitMQ's management API, as far as tests need it: close connections, make users."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pika
import pytest
from sqlalchemy import make_url

from tests.servers import PREFIX, read_settings


@dataclass(frozen=True, slots=True)
class Management:
    """The API of one virtual host's node."""

    base: str
    authorization: str
    vhost: str

    @classmethod
    def of(cls, rabbitmq_url: str) -> Management:
        """For the virtual host of an AMQP URL; skips the test when the API's address is not known."""
        address = read_settings().get(f"{PREFIX}RABBITMQ_MANAGEMENT")
        if address is None:
            pytest.skip(f"{PREFIX}RABBITMQ_MANAGEMENT is not set")
        url = make_url(address)
        login = b64encode(f"{url.username}:{url.password}".encode()).decode()
        return cls(
            f"{url.drivername}://{url.host}:{url.port}/api", f"Basic {login}", make_url(rabbitmq_url).database or "/"
        )

    def close_connections(self, *, but: pika.BlockingConnection, seconds: float = 15) -> int:
        """Close this virtual host's connections, except the test's own; waits until the API lists one to close."""
        mine = but._impl._transport._sock.getsockname()[1]
        deadline = time.monotonic() + seconds
        while True:
            listed = [
                one for one in self._call("GET", f"/vhosts/{self._vhost}/connections") if one.get("peer_port") != mine
            ]
            if listed or time.monotonic() > deadline:
                break
            time.sleep(0.1)  # the API's statistics lag behind by some seconds
        for one in listed:
            self._call("DELETE", f"/connections/{urllib.parse.quote(one['name'], safe='')}")
        return len(listed)

    @contextmanager
    def user(
        self, *, may_write_topic: tuple[str, str], configure: str = ".*", read: str = ".*"
    ) -> Iterator[tuple[str, str]]:
        """A user who may write to one topic exchange, with routing keys that fit the pattern: name and password."""
        name, password = f"t_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
        exchange, pattern = may_write_topic
        self._call("PUT", f"/users/{name}", {"password": password, "tags": ""})
        resources = {"configure": configure, "write": ".*", "read": read}
        self._call("PUT", f"/permissions/{self._vhost}/{name}", resources)
        topic = {"exchange": exchange, "write": pattern, "read": ".*"}
        self._call("PUT", f"/topic-permissions/{self._vhost}/{name}", topic)
        try:
            yield name, password
        finally:
            self._call("DELETE", f"/users/{name}")

    @property
    def _vhost(self) -> str:
        return urllib.parse.quote(self.vhost, safe="")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=15) as response:
            text = response.read()
        return json.loads(text) if text else None
