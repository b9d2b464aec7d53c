"""The balance, from what is in both databases: nothing that the services say of themselves is believed."""

from typing import NamedTuple

from sqlalchemy import Connection, Engine, text


class Balance(NamedTuple):
    """Counts of orders. All of ``ghosts``, ``lost``, ``twice`` and ``wrong`` must be 0.

    ``ghosts``: the stock service heard of an order that does not exist. ``lost``: an order whose fate is not known when
    all is drained. ``twice``: reserved more than once. ``wrong``: confirmed without goods, cancelled with goods, or
    pieces that are neither on the shelf nor reserved.
    """

    orders: int
    confirmed: int
    cancelled: int
    ghosts: int
    lost: int
    twice: int
    wrong: int

    @property
    def holds(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.ghosts or self.lost or self.twice or self.wrong)


def undecided(orders: Engine) -> int:
    """Orders whose fate is not known yet."""
    with orders.connect() as connection:
        return _number(connection, "SELECT COUNT(*) FROM orders WHERE state = 'placed'")


def balance(orders: Engine, stock: Engine, pieces: int) -> Balance:
    """Compare both databases; ``pieces``: how many there were on all shelves at the beginning."""
    with orders.connect() as ours:
        states = _pairs(ours, "SELECT number, state FROM orders")
        events = _pairs(ours, "SELECT event_id, aggregate_id FROM outbox_event")
    with stock.connect() as theirs:
        heard = set(theirs.execute(text("SELECT event_id FROM inbox_event WHERE consumer = 'stock'")).scalars())
        reserved = list(theirs.execute(text("SELECT number FROM reservations")).scalars())
        on_shelves = _number(theirs, "SELECT SUM(free) FROM shelves")
    told = {events.get(event_id) for event_id in heard}
    with_goods = set(reserved)
    ghosts = len([number for number in told if number not in states]) + len(with_goods - states.keys())
    amiss = [n for n, state in states.items() if state != "placed" and (state == "confirmed") != (n in with_goods)]
    return Balance(
        orders=len(states),
        confirmed=_count(states, "confirmed"),
        cancelled=_count(states, "cancelled"),
        ghosts=ghosts,
        lost=_count(states, "placed"),
        twice=len(reserved) - len(with_goods),
        wrong=len(amiss) + abs(pieces - on_shelves - len(reserved)),
    )


def _count(states: dict[str, str], state: str) -> int:
    return sum(one == state for one in states.values())


def _pairs(connection: Connection, sql: str) -> dict[str, str]:
    return {str(one): str(other) for one, other in connection.execute(text(sql))}


def _number(connection: Connection, sql: str) -> int:
    return int(connection.execute(text(sql)).scalar() or 0)
