"""Dead letters as tables for people and as plain values for JSON."""

from __future__ import annotations

import base64
import getpass
import os
import socket

from rich.console import ConsoleRenderable, Group
from rich.table import Table

from ..ops.dead_letters import DeadLetter, DeadLetterDetails, Page
from .output import moment


def operator() -> str:
    """Who is at the keyboard: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in passwd
        user = f"uid-{os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def page_as_dict(page: Page) -> dict[str, object]:
    """For JSON."""
    return {"dead_letters": [letter._asdict() for letter in page.letters], "next": page.next}


def letters_table(page: Page) -> Group:
    """One line a letter."""
    if not page.letters:
        return Group("No dead letters.")
    return Group(_letters(page.letters), *([f" more: --after {page.next}"] if page.next else []))


def details_as_dict(letter: DeadLetterDetails) -> dict[str, object]:
    """For JSON: a payload that is not text comes as base64."""
    message = letter.message._asdict()
    message["payload"] = _text(letter.message.payload)
    if message["payload"] is None:
        message["payload_base64"] = base64.b64encode(letter.message.payload).decode("ascii")
    return {
        "message": message,
        "letters": [one._asdict() for one in letter.letters],
        "replays": [one._asdict() for one in letter.replays],
    }


def details_view(letter: DeadLetterDetails) -> Group:
    """The event, its dead deliveries, its replays and its payload, one below the other."""
    facts = Table(show_header=False, box=None)
    for name, value in letter.message._asdict().items():
        if name not in ("payload", "destination", "routing_key") and value is not None:
            facts.add_row(name, str(value))
    replays = Table("at", "by", "reason", "destination", "attempts", "error", box=None, title="replays and burials")
    for one in letter.replays:
        row = (moment(one.replayed_at), one.replayed_by, one.reason, str(one.dest), str(one.attempts), one.error)
        replays.add_row(*row)
    payload = letter.message.payload
    shown = _text(payload)
    body = f"<{len(payload)} bytes, not text>" if shown is None else shown
    history: list[ConsoleRenderable | str] = ["", replays] if letter.replays else []
    buried = [one.dest for one in letter.letters if one.state == "BURIED"]
    grave = [f"buried: destination {', '.join(map(str, buried))}; it is never replayed"] if buried else []
    return Group(facts, "", _letters(letter.letters), *grave, *history, "", body)


def _letters(letters: list[DeadLetter]) -> Table:
    table = Table(box=None)
    for name in ("event id", "type", "destination", "attempts", "replays", "died at", "error"):
        table.add_column(name, overflow="fold")
    for one in letters:
        counts = (str(one.attempts), str(one.replays))
        table.add_row(one.event_id, one.event_type, one.destination, *counts, moment(one.error_at), one.error)
    return table


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return None
