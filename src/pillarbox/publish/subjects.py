"""NATS subjects: what may be published to, and what a pattern takes along. Without the client, for both directions."""

from __future__ import annotations

from typing import Final

from ..event.message import Message

MOST: Final = 1_000
"""Bytes of a subject. The server's line has 4,096 for it, the reply subject and the sizes."""


def subject_of(message: Message) -> str:
    """The destination's name, with the routing key, where there is one, as further tokens."""
    return message.destination if not message.routing_key else f"{message.destination}.{message.routing_key}"


def why_not(subject: str) -> str | None:
    """Why nothing can be published to it; None when it can.

    >>> why_not("orders.created"), why_not("orders..created")
    (None, "the subject 'orders..created' has an empty token")
    """
    if not subject:
        return "NATS needs a subject; the destination's name is empty"
    if subject.startswith("$"):  # $JS.API.STREAM.DELETE... would be obeyed
        return f"the subject {subject!r} belongs to the server: it begins with '$'"
    return flaw(subject) or (f"the subject {subject!r} is a pattern" if is_pattern(subject) else None)


def flaw(subject: str) -> str | None:
    """What makes it no subject and no pattern either; None when it is one."""
    if any(mark.isspace() or not mark.isprintable() for mark in subject):
        return f"the subject {subject!r} has a space or a control character"
    if len(subject.encode()) > MOST:
        return f"the subject has more than {MOST:,} bytes"
    if "" in subject.split("."):
        return f"the subject {subject!r} has an empty token"
    return None


def is_pattern(subject: str) -> bool:
    """True when a token of it is ``*`` or ``>``."""
    return not {"*", ">"}.isdisjoint(subject.split("."))


def takes(pattern: str, subject: str) -> bool:
    """Whether a pattern takes a subject along: ``*`` is one token, ``>`` at the end at least one.

    >>> takes("orders.*", "orders.created"), takes("orders.>", "orders"), takes("orders", "orders")
    (True, False, True)
    """
    wanted, found = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">":
            return len(found) > place
        if place >= len(found) or token not in ("*", found[place]):
            return False
    return len(wanted) == len(found)
