"""docs/tables.md names each table, each column of the tables that operators read, and each state."""

import re
from pathlib import Path

import pytest

from pillarbox.ops.overview import WHY
from pillarbox.store.schema import inbox_metadata, outbox_lane, outbox_metadata, outbox_partition

TEXT = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
TABLES = {*outbox_metadata.tables, *inbox_metadata.tables}


def test_each_table_has_its_line_and_no_line_is_about_a_table_that_is_gone() -> None:
    listed = set(re.findall(r"^\| `((?:outbox|inbox)_\w+)` \| [^`]", TEXT.split("## ")[0], re.MULTILINE))
    assert listed == TABLES


@pytest.mark.parametrize("column", [one.name for one in (*outbox_partition.c, *outbox_lane.c)])
def test_each_column_of_partitions_and_holds_is_explained(column: str) -> None:
    assert column in {"since", "reason", "destination"} or f"`{column}`" in TEXT


@pytest.mark.parametrize("state", [*WHY, "SENT", "ORPHAN"])
def test_each_state_is_explained(state: str) -> None:
    assert f"`{state}`" in TEXT
