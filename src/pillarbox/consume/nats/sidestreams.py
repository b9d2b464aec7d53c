"""Copies into the streams of dead letters and retries, each acknowledged. Runs on the event loop's thread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import nats.errors

from ...errors import BrokerUnavailable
from ...ports import Confirmed
from ...publish.nats.connection import FAILURES, Connection, reason_of
from ...publish.nats.headers import size_of, written
from ...publish.nats.verdicts import verdict
from ...publish.nats.writing import MSG_ID
from ..dead import LEFT_OUT
from ..retries import REASON

MAX_HEADER_BYTES: Final = 64 * 1024 - 1_000
"""The server takes 64 KiB of headers, less what it and the message's id need."""

_MAX_NAMES: Final = 500


async def put(
    connection: Connection,
    subject: str,
    body: bytes,
    headers: Mapping[str, str],
    added: Mapping[str, str],
    *,
    msg_id: str | None,
    seconds: float,
) -> None:
    """Publish a copy and wait for its stream; BrokerUnavailable (PB-005) when it is not safely there.

    ``msg_id``: the same copy made again, after a crash before the original was acknowledged, is dropped by the server.
    """
    most = min(MAX_HEADER_BYTES, connection.max_payload - len(body) - 200)
    wire = fitting(headers, added, most)
    if msg_id is not None:
        wire[MSG_ID] = msg_id
    try:
        answer = await connection.request(subject, body, timeout=seconds, headers=wire)
        outcome = verdict(json.loads(answer.data), subject)
    except nats.errors.NoRespondersError as error:
        raise BrokerUnavailable(f"No stream has the subject {subject!r}: was it deleted?") from error
    except (*FAILURES, ValueError) as error:
        raise BrokerUnavailable(f"The copy for {subject!r} was not acknowledged: {reason_of(error)}.") from error
    if not isinstance(outcome, Confirmed):
        raise BrokerUnavailable(f"The stream of {subject!r} did not take it: {outcome.reason}.")


def fitting(headers: Mapping[str, str], added: Mapping[str, str], most: int) -> dict[str, str]:
    """The headers as they travel, in ``most`` bytes: first the reason of a retry and then the largest of the original
    ones are left out and named in ``deadLetterLeftOut``. Refused for its size, a message would never leave."""
    kept, more = dict(headers), dict(added)
    left_out: list[str] = []
    while True:
        named = {LEFT_OUT: ", ".join(left_out)[:_MAX_NAMES]} if left_out else {}
        wire = written([*kept.items(), *more.items(), *named.items()])
        if size_of(wire) <= most:
            return wire
        if more.pop(REASON, None) is not None:
            continue
        if not kept:
            return wire
        largest = max(kept, key=lambda name: len(kept[name]))
        del kept[largest]
        left_out.append(largest)
