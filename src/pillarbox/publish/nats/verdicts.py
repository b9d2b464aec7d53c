"""What JetStream's answers to a publish mean for an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...ports import Confirmed, Outcome, Rejected, Unavailable, Unknown

# Numbers from the server's own list, server/errors.json.
_TOO_LARGE: Final = frozenset({10054, 10097})  # message or header over the stream's limit
_OTHER_STREAM: Final = 10060
_SEALED: Final = 10109
_FULL: Final = frozenset({10002, 10023, 10047, 10077})  # discard new, or no room for the account or on the disk
_SAME_ID_UNDER_WAY: Final = 10158


def verdict(answer: Mapping[str, Any], subject: str) -> Outcome:
    """The outcome that an acknowledgement carries: it is in the stream at this sequence, or why not.

    A duplicate is confirmed at the place of the first. JetStream counts one sequence for the whole stream, so there is
    no partition.

    >>> verdict({"stream": "ORDERS", "seq": 7}, "orders")
    Confirmed(partition=None, offset=7)
    """
    error = answer.get("error")
    if error is None and "seq" in answer:
        return Confirmed(None, int(answer["seq"]))
    if not isinstance(error, Mapping):
        return Unknown(f"an answer that is no acknowledgement came for {subject!r}", destination_healthy=True)
    return _refusal(error, subject)


def no_stream(subject: str) -> Rejected:
    """Retryable: a stream that is made a minute later needs no replay."""
    return Rejected(f"no stream has the subject {subject!r}", permanent=False, of_destination=True)


def no_leader(subject: str) -> Unavailable:
    """A stream has the subject, and nobody answers for it: its leader is away, or its replicas."""
    return Unavailable(f"the stream of {subject!r} has no leader now", broker_answers=True)


def too_large(size: int, most: int) -> Rejected:
    """Over the server's ``max_payload``, which counts the headers as well."""
    return Rejected(f"too large: {size:,} bytes with its headers, the server takes {most:,} (max_payload)", True)


def forbidden(text: str) -> Rejected:
    """The user has no right to publish to it."""
    return Rejected(f"not authorised: {text}", permanent=True)


def _refusal(error: Mapping[str, Any], subject: str) -> Outcome:
    code, number = int(error.get("code") or 0), int(error.get("err_code") or 0)
    reason = f"{error.get('description') or 'refused'} ({number or code})"
    if number in _TOO_LARGE:
        return Rejected(f"too large: {reason}", permanent=True)
    if number == _OTHER_STREAM:
        return Rejected(f"{subject!r} is not of the stream in the URL: {reason}", permanent=False, of_destination=True)
    if number == _SEALED:
        return Rejected(reason, permanent=False, of_destination=True)
    if number == _SAME_ID_UNDER_WAY:
        return Unknown(reason, destination_healthy=False, broker_answers=True)
    if number in _FULL or code >= 500:
        return Unavailable(f"the stream of {subject!r} takes nothing now: {reason}", broker_answers=True)
    return Rejected(reason, permanent=False)
