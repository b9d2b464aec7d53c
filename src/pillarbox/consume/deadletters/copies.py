"""What the headers of a letter become when it is sent again, and what is noted in its place."""

from __future__ import annotations

from ...event.codec import as_utc_text
from ...event.message import ID
from .. import dead, retries
from .letters import Letter, Order


def headers_again(letter: Letter, order: Order) -> list[tuple[str, str]]:
    """The headers to add in the retry topic or queue: due at once, with no failed attempt so far."""
    reason = f"replayed by {order.by}: {order.reason}"
    return retries.retry_headers(seconds=0.0, now=order.at, position=letter.position, reason=reason, attempts=0)


def note_headers(letter: Letter, order: Order) -> list[tuple[str, str]]:
    """The headers of a record without body that says: the letter at that place was sent again."""
    found = [
        (dead.REPLAYED, letter.place),
        (dead.REPLAYED_BY, order.by),
        (dead.REPLAYED_AT, as_utc_text(order.at)),
        (dead.REPLAY_REASON, order.reason),
    ]
    return [(ID, letter.event_id), *found] if letter.event_id else found
