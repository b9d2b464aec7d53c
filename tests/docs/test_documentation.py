"""Every Python example in the documentation runs, or says why not."""

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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_python_example_is_marked_to_run_or_says_why_not(page: Path) -> None:
    for mark, code in blocks(page):
        assert re.match(r"(run: |file: |no-run: .{10,})", mark), f"{page.name}: mark this example:\n{code}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(m.startswith("run: ") for m, _ in blocks(p))], ids=lambda p: p.name
)
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    script: list[str] = []
    for mark, code in blocks(page):
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(code)
        elif mark.startswith("run: "):
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
