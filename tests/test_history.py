"""A long history costs a relay nothing: what its reads pass over is counted by the server itself."""

from __future__ import annotations

from argparse import Namespace

import pytest

from bench import history

SENT, PENDING, BATCH = 200_000, 4_000, 500
MOST = 2.1
"""Rows of the hot table examined for each event sent: its own, and those that are on their way when it is read."""


@pytest.mark.parametrize("ownership", ["partition", "row"])
@pytest.mark.parametrize("server", ["postgres", "mysql"])
def test_a_relay_examines_no_row_of_what_was_sent_before(
    server: str, ownership: str, request: pytest.FixtureRequest
) -> None:
    """Statistics are fresh and tell of 204,000 events; the hot table holds 4,000 rows."""
    request.getfixturevalue(f"{server}_url")
    options = Namespace(
        database=server, ownership=ownership, pending=PENDING, measured=PENDING, batch=BATCH, payload=20
    )

    found = history.one_case(options, SENT)

    work = found["database_work_per_event"]
    assert work["rows_examined"] <= MOST
    assert work["rows_deleted"] == pytest.approx(1, abs=0.01)
    assert found["batches"] >= PENDING // BATCH - 1
