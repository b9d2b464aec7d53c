"""The role of an HTTP application: FastAPI under uvicorn, whose requests are business transactions with an event.

With ``embed`` it runs the relay in its own process, the way the documentation shows. It says its port when it is ready,
and at the end its processor time and what its relay has done.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from bench.child import Told, questions, say
from pillarbox import Event, Outbox, relay_for

ARTICLES = 1000
TABLES = (
    "CREATE TABLE bench_stock (article INTEGER PRIMARY KEY, amount BIGINT NOT NULL)",
    "CREATE TABLE bench_order (number VARCHAR(36) PRIMARY KEY, article INTEGER NOT NULL, at_price INTEGER NOT NULL)",
    "CREATE TABLE bench_line (number VARCHAR(36), line INTEGER, article INTEGER NOT NULL, PRIMARY KEY (number, line))",
)
STATEMENTS = (
    "SELECT amount FROM bench_stock WHERE article = :article",
    "UPDATE bench_stock SET amount = amount - 1 WHERE article = :article",
    "INSERT INTO bench_order (number, article, at_price) VALUES (:number, :article, 1990)",
    "INSERT INTO bench_line (number, line, article) VALUES (:number, 1, :article)",
    "SELECT COUNT(*) FROM bench_line WHERE number = :number",
)


def make_tables(engine: Engine) -> None:
    """The application's own, filled."""
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(text(table))
        rows = [{"article": number} for number in range(ARTICLES)]
        connection.execute(text("INSERT INTO bench_stock (article, amount) VALUES (:article, 1000000)"), rows)


def main(told: Told) -> None:
    """``told``: database, broker, destination, embed."""
    logging.basicConfig(level=logging.WARNING)
    found: dict[str, Any] = {}
    server = uvicorn.Server(uvicorn.Config(make_app(told, found), log_level="warning", access_log=False))
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    say({"port": listening.getsockname()[1]})
    for _ in questions():
        say({"cpu": time.process_time()})
    server.should_exit = True
    thread.join(40)
    say({"cpu": time.process_time(), **found})


def make_app(told: Told, found: dict[str, Any]) -> FastAPI:
    """One route. ``found`` takes the relay's counters when it has ended."""
    engine = create_engine(told["database"], pool_size=10)
    outbox = Outbox(bind=engine, routes={"order.created": told["destination"]})

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if not told["embed"]:
            yield
            return
        relay = relay_for(told["database"], told["broker"])
        with relay.started():
            outbox.nudges(relay.nudge)
            yield
        found["relay"] = relay.stats.as_dict()

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{number}")
    def create_order(number: str) -> dict[str, str]:
        values = {"number": number, "article": hash(number) % ARTICLES}
        with Session(engine) as session, session.begin():
            for statement in STATEMENTS:
                session.execute(text(statement), values)
            queued = outbox.add(session, Event(values, type="order.created", aggregate=("order", number)))
        return {"event": str(queued.id)}

    return app
