"""Every Python example in the documentation runs, in the order of its page.

A comment before a block changes that: ``<!-- file: NAME -->`` writes it to a file first, ``<!-- no-run: reason -->``
leaves it out.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```python\n(?P<code>.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """(mark, code) of each Python block of a page."""
    return [(m["mark"] or "", m["code"]) for m in BLOCK.finditer(page.read_text())]


PAGES_WITH_CODE = [page for page in PAGES if any(not mark.startswith("no-run:") for mark, _ in blocks(page))]


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda p: p.name)
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    script: list[str] = []
    for mark, code in blocks(page):
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(code)
        elif not mark.startswith("no-run: "):
            script.append(code)
    (tmp_path / "example.py").write_text("\n".join(script))
    environment = {
        **os.environ,
        "PILLARBOX_DATABASE": "sqlite:///shop.db",
        "PILLARBOX_BROKER": "embedded:log.db",
        "PYTHONPATH": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_example_that_does_not_run_says_why() -> None:
    for page in PAGES:
        for mark, code in blocks(page):
            assert mark == "" or re.match(r"(file: \S+|no-run: .{10,})$", mark), f"{page.name}: {mark!r} before\n{code}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [
        *PAGES,
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
    ]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
