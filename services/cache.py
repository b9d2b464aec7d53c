"""Downloads that are kept: made once, found by every checkout, never found half-made."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from services.place import locked


def kept(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder; if it is not there yet, `make(new)` fills an empty one that then takes its name."""
    if folder.exists():
        return folder
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            new = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            make(new)
            # The servers run as other users, and mmdebstrap leaves the top folder to its maker alone.
            subprocess.run(["chmod", "-R", "a+rX", str(new)], check=True, timeout=120)
            new.rename(folder)
    return folder
