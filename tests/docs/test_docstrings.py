"""The examples in docstrings run, and every public class has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import pillarbox

MODULES = [
    found.name
    for found in pkgutil.walk_packages(pillarbox.__path__, "pillarbox.")
    if not found.name.endswith("__main__") and ".migrations" not in found.name
]


def examples(module: str) -> list[doctest.DocTest]:
    """The docstrings of a module that have examples."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_run(module: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in examples(module):
        report: list[str] = []
        assert runner.run(test, out=report.append).failed == 0, "".join(report)


PUBLIC = [
    getattr(pillarbox, name)
    for name in pillarbox.__all__
    if inspect.isclass(getattr(pillarbox, name)) and not issubclass(getattr(pillarbox, name), BaseException | Warning)
]


@pytest.mark.parametrize("public", PUBLIC, ids=lambda c: c.__name__)
def test_every_public_class_shows_how_it_is_used(public: type) -> None:
    assert ">>>" in (public.__doc__ or ""), f"{public.__qualname__} has no example"
