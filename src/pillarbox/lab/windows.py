"""The windows: each place where a fault leaves two systems in disagreement, in the order of the report."""

from __future__ import annotations

from typing import Final

from .model import Window

WINDOWS: Final = (
    Window(
        "W1",
        "confirmed, then rolled back",
        "The broker has confirmed the message, and the database transaction around it rolls back.",
    ),
    Window(
        "W2",
        "committed, then dead",
        "The database has committed, and the process dies before it sends.",
    ),
    Window(
        "W3",
        "stored, and nobody knows",
        "The broker has stored the message, and its answer never reaches the sender.",
    ),
    Window(
        "W3r",
        "confirmed, not settled",
        "The relay has the broker's confirmation, and dies before it notes it in the outbox.",
    ),
    Window(
        "B1",
        "inserted, not committed",
        "The process dies after its INSERT and before COMMIT is sent.",
    ),
    Window(
        "B2",
        "a commit that nobody knows of",
        "COMMIT has reached the database, and its answer never reaches the process.",
    ),
    Window(
        "B3",
        "lease lost while sending",
        "A relay stands still between its claim and its end until another relay has its work, and then goes on.",
    ),
    Window(
        "B4",
        "the second commit fails",
        "The database has committed, and the broker's own transaction, which was to follow it, cannot commit.",
    ),
    Window(
        "W4",
        "applied, not acknowledged",
        "One of the consumer's two steps, its commit and its acknowledgement, is done, and it dies before the other.",
        side="consuming",
    ),
    Window(
        "W4r",
        "two at once",
        "Two deliveries of one event are handled at the same time, each before the other has committed.",
        side="consuming",
    ),
)


def window(id_: str) -> Window:
    """The window of this id; KeyError for others."""
    return {one.id: one for one in WINDOWS}[id_]
