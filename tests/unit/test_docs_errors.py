"""docs/errors.md and errors.py cannot drift apart."""

import inspect
import re
from pathlib import Path

import pytest

from pillarbox import errors
from pillarbox.errors import PillarboxError

TEXT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (PB-\d{3})\n(.*?)(?=^##? |\Z)", TEXT, re.MULTILINE | re.DOTALL))
CLASSES = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, PillarboxError) and found is not PillarboxError
]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_each_error_has_its_section_with_its_name_its_sentence_and_a_fix(error: type[PillarboxError]) -> None:
    section = SECTIONS[error.code]
    said = " ".join(section.split())
    sentence = " ".join((error.__doc__ or "").split("\n\n")[0].replace("``", "`").split())
    start = f"`{error.__name__}`: {sentence}"
    assert said[: len(start)].lower() == start.lower()
    assert "**Fix.**" in section


def test_each_section_has_its_error_and_each_code_is_used_once() -> None:
    codes = [error.code for error in CLASSES]
    assert sorted(codes) == sorted(set(codes))
    assert set(SECTIONS) == set(codes)
    assert len(re.findall(r"^## PB-", TEXT, re.MULTILINE)) == len(codes)
