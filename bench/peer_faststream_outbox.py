"""The peer of ``python -m bench inbox``: faststream-outbox on PostgreSQL, each event one handler with one insert.

Run by an interpreter that has it, and nothing of ours: ``python peer_faststream_outbox.py URL EVENTS WORKERS`` prints
the seconds from the first handler to the last event gone, the events handled, and the process's CPU seconds, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, func, select, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

PATIENCE = 600.0


async def measure(url: str, events: int, workers: int) -> dict[str, float]:
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="peer_queue")
    engine = create_async_engine(url, pool_size=workers + 4)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(text("CREATE TABLE peer_effect (id BIGINT PRIMARY KEY)"))
    broker = OutboxBroker(engine, outbox_table=table)
    sessions = async_sessionmaker(engine)
    began: list[float] = []

    @broker.subscriber("orders", max_workers=workers)
    async def handle(number: int) -> None:
        if not began:
            began.append(time.perf_counter())
        async with sessions() as session, session.begin():
            await session.execute(text("INSERT INTO peer_effect (id) VALUES (:id)"), {"id": number})

    for start in range(0, events, 500):
        async with sessions() as session, session.begin():
            await broker.publish_batch(*range(start, min(start + 500, events)), queue="orders", session=session)
    cpu = time.process_time()
    await broker.start()
    until = time.monotonic() + PATIENCE
    while True:
        async with engine.connect() as connection:
            left = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
        if not left:
            break
        if time.monotonic() > until:
            raise TimeoutError(f"{left} events left after {PATIENCE:g} s")
        await asyncio.sleep(0.05)
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - cpu
    async with engine.connect() as connection:
        handled = (await connection.execute(text("SELECT count(*) FROM peer_effect"))).scalar_one()
    await broker.stop()
    await engine.dispose()
    return {"events": handled, "seconds": seconds, "cpu": cpu}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
