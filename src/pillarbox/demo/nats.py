"""The demo's stream on a NATS server, read back and removed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import BrokerUnavailable
from ..event.destination import Destination, Topic
from ..publish.nats.connection import connect
from ..publish.nats.headers import parse
from ..publish.nats.loop import LoopThread
from ..publish.nats.url import parse_nats_url

SECONDS = 10.0

Place = tuple[str, Destination, str, dict[str, Any], Any]


@contextmanager
def nats_place(url: str, name: str) -> Iterator[Place]:
    """A stream with one subject of the same name. Without the server's window: duplicates are what the demo shows."""
    loop = LoopThread("pillarbox-demo-nats")
    parsed = parse_nats_url(url)

    def api(subject: str, question: object = None) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            connection = await connect(parsed, "pillarbox demo", first=0, seconds=SECONDS)
            try:
                return await connection.ask(subject, question, SECONDS)
            finally:
                await connection.farewell()

        return loop.ask(ask(), 3 * SECONDS)

    def read() -> list[str]:
        async def ids() -> list[str]:
            connection = await connect(parsed, "pillarbox demo", first=0, seconds=SECONDS)
            found, after = list[str](), 0
            try:
                while True:
                    question = {"seq": after + 1, "next_by_subj": name}
                    answer = await connection.ask(f"STREAM.MSG.GET.{name}", question, SECONDS)
                    if "message" not in answer:
                        return found
                    after = int(answer["message"]["seq"])
                    found.append(parse(base64.b64decode(answer["message"]["hdrs"]))["id"])
            finally:
                await connection.farewell()

        return loop.ask(ids(), 6 * SECONDS)

    try:
        made = api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "storage": "file", "num_replicas": 1})
        if "error" in made:
            raise BrokerUnavailable(f"The stream {name} cannot be made: {made['error'].get('description')}.")
        joined = f"{url}{'&' if '?' in url else '?'}deduplicate=no"
        yield joined, Topic(name), name, {"ack_wait": 3.0}, read
    finally:
        api(f"STREAM.DELETE.{name}")
        loop.stop()
