"""The command line: the argument tree in ``app.py``, one file per command, exit codes in ``exit_codes.py``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of ``pillarbox``. Every PillarboxError ends as one sentence with code and fix, without traceback."""
    from ..errors import PillarboxError
    from .exit_codes import ExitCode

    try:
        from .app import app

        app()
    except PillarboxError as error:
        from .failures import report

        sys.exit(report(error, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
