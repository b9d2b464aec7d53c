"""Scheduled delivery with a real relay, of either kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pillarbox import Event, Outbox
from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Cli


def place(shop: Shop, count: int, available_at: datetime | None = None) -> list[str]:
    """Events of one key, in one transaction."""
    engine = relay_engine(shop.database)
    outbox = Outbox(bind=engine)
    with engine.begin() as connection:
        drafts = [Event({"n": n}, type="order.created", aggregate=("order", 7)) for n in range(count)]
        queued = outbox.add_all(connection, drafts, to="orders", available_at=available_at)
    engine.dispose()
    return [str(one.id) for one in queued]


OFTEN = [("partition", "mysql"), ("row", "postgres"), ("partition", "sqlite")]
"""Each kind and each database once; all pairs are left to the long tests."""


@pytest.mark.parametrize(
    ("ownership", "database_name"),
    [
        pytest.param(kind, name, marks=[] if (kind, name) in OFTEN else [pytest.mark.long])
        for kind in ("partition", "row")
        for name in ("sqlite", "postgres", "mysql")
    ],
    indirect=["database_name"],
)
def test_an_event_is_sent_when_it_is_due_and_in_order_from_then_on(cli: Cli, database_url: str, ownership: str) -> None:
    shop = Shop.made(database_url, f"embedded:///{cli.folder / 'log.db'}")
    with cli.started("relay", "--ownership", ownership, env=shop.env) as relay:
        relay.wait_for("outbox on")
        later = place(shop, 3, datetime.now(UTC) + timedelta(seconds=2))
        due = shop.rows("SELECT MAX(due_at) FROM outbox_parked WHERE state = 'SCHEDULED'")
        now = place(shop, 2)
        relay.until(lambda: shop.rows("SELECT COUNT(*) FROM outbox_receipt")[0][0] == 5)
    sent = shop.rows(
        "SELECT e.event_id, r.sent_at FROM outbox_receipt r JOIN outbox_event e ON e.id = r.id ORDER BY r.broker_offset"
    )
    assert [row[0] for row in sent] == [*now, *later]
    assert all(str(row[1]) > str(due[0][0]) for row in sent[2:]), (due, sent)
