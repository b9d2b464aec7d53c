"""docs/configuration.md has one line for each setting, with its true names and default."""

import re
from pathlib import Path

import pytest

from pillarbox.config import FLAGS, Config, keys, variable

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = {cells[0].strip("`"): cells for cells in (
    [cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| `")
)}  # fmt: skip


@pytest.mark.parametrize("key", keys())
def test_each_setting_has_its_line_with_its_names_and_default(key: str) -> None:
    _, environment, option, default, meaning = ROWS[key]
    assert environment == f"`{variable(key)}`"
    assert option.strip("`") == FLAGS.get(key, "")
    assert meaning
    value: object = Config()
    for part in key.split("."):
        value = getattr(value, part)
    if value is not None:
        assert default == (str(value).lower() if isinstance(value, bool) else re.sub(r"\.0$", "", str(value)))


def test_no_line_describes_a_setting_that_is_gone() -> None:
    assert set(ROWS) == set(keys())
