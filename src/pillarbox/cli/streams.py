"""Standard output and error as they may be found: closed, full, or in an encoding that lacks most characters."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Final, TextIO

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def check_streams() -> None:
    """Let no character and no missing stream end a command: what cannot be encoded is written as an escape."""
    # With `>&-` Python has no sys.stdout; a script that closes it wants silence and the exit code.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def forget_output() -> None:
    """Let nothing more of the output be tried: Python would, at its end, with a traceback and a status of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def only_ascii(stream: TextIO) -> bool:
    """Whether JSON for ``stream`` must escape everything else itself, to stay JSON."""
    return (stream.encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf16", "utf32")


def is_about_output(error: OSError) -> bool:
    """A full disk behind standard output; a closed pipe is ended quietly by Typer."""
    return error.errno in _NO_ROOM and error.filename is None
