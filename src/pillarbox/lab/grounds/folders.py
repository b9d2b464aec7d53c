"""Temporary folders for SQLite and the embedded log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import LabError
from .claims import Claim, abandoned, forget


@contextmanager
def own_folder(claimed: Claim) -> Iterator[None]:
    """The claim's folder, which only this user may look into; gone at the end, also after an error."""
    try:
        claimed.folder.mkdir(mode=0o700)
    except OSError as error:
        raise LabError(
            f"The lab cannot make the temporary folder {claimed.folder}: {error.strerror}.",
            fix="Point TMPDIR at a folder that it may write.",
        ) from error
    try:
        yield
    finally:
        shutil.rmtree(claimed.folder, ignore_errors=True)
        forget(claimed.name)


def remove_left_folders() -> list[str]:
    """Remove the folders that killed runs on this machine have left; returns their paths."""
    removed: list[str] = []
    with abandoned("folder") as claims:
        for one in claims:
            if one.folder.name == one.name and one.folder.is_dir():
                shutil.rmtree(one.folder, ignore_errors=True)
                removed.append(str(one.folder))
            forget(one.name)
    return removed
