"""The tables of the soak beside the lab's own: aggregates that writers lock, one row for each key."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, select, update

METADATA = MetaData()

device = Table(
    "soak_device",
    METADATA,
    Column("name", String(40), primary_key=True),
    Column("number", BigInteger, nullable=False),  # of the device's last alarm; counts without gaps
)


def make(engine: Engine, keys: int) -> None:
    """Create the table, with ``keys`` devices."""
    METADATA.create_all(engine)
    with engine.begin() as connection:
        connection.execute(device.insert(), [{"name": name, "number": 0} for name in names(keys)])


def names(keys: int) -> list[str]:
    """The keys of all events."""
    return [f"d{number:04d}" for number in range(keys)]


def next_numbers(connection: Connection, devices: Sequence[str]) -> dict[str, int]:
    """Lock these devices until the end of the transaction, and count each up by one.

    In the order of their names, so that two writers never wait for one another. The lock is what makes the order of a
    key's events well defined, as in any application: the next one can only be written when this one is committed.
    """
    for name in sorted(devices):
        connection.execute(update(device).where(device.c.name == name).values(number=device.c.number + 1))
    counted = connection.execute(select(device.c.name, device.c.number).where(device.c.name.in_(devices)))
    return {name: int(number) for name, number in counted}
