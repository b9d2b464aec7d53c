"""A consumer's start on a busy SQLite database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from pillarbox import Consumer, Received, install
from pillarbox.store.engines import sqlite_engine


def test_a_consumer_starts_while_another_process_has_the_only_write_lock(tmp_path: Path) -> None:
    url = f"sqlite:///{(tmp_path / 'stock.db').as_posix()}"
    engine = sqlite_engine(url, busy_timeout=0.2)
    install(engine, parts=("inbox",))
    consumer = Consumer("stock", database=engine, broker=f"embedded://{tmp_path.as_posix()}/log.db", sources=["orders"])

    @consumer.on("thing.happened")
    def handle(event: Received[bytes], session: Session) -> None: ...

    writer = sqlite_engine(url)
    with writer.connect() as connection:
        connection.exec_driver_sql("SELECT 1")  # BEGIN IMMEDIATE stands before it
        with consumer.start(10):
            pass
    writer.dispose()
    engine.dispose()
