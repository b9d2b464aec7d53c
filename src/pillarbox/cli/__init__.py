"""The command line: the argument tree in ``app.py``, one file per command, exit codes in ``exit_codes.py``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of ``pillarbox``. Every PillarboxError ends as one sentence with code and fix, without traceback."""
    from ..errors import PillarboxError
    from .exit_codes import ExitCode
    from .streams import check_streams, forget_output, is_about_output

    check_streams()
    try:
        from .app import app

        try:
            app()
        finally:
            sys.stdout.flush()  # what Python still has of the result, while a failure can be told
    except BrokenPipeError:  # the reader had enough, as in `| head`
        forget_output()
        sys.exit(ExitCode.FAILED)
    except OSError as error:
        if not is_about_output(error):
            raise
        forget_output()
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(ExitCode.FAILED)
    except PillarboxError as error:
        from .failures import report

        sys.exit(report(error, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
