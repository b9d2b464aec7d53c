"""How a failed command says so: one sentence with code and fix on stderr, never a traceback."""

from __future__ import annotations

import json
import logging
import sys

from ..errors import PillarboxError
from ..masking import mask_url
from .exit_codes import ExitCode, exit_code
from .streams import only_ascii


def report(error: PillarboxError, *, as_json: bool) -> ExitCode:
    """Print ``error`` on stderr and return the exit code for it. At log level debug its traceback comes before."""
    logging.getLogger("pillarbox.cli").debug("%s", error, exc_info=error)
    message, fix = mask_url(error.message), mask_url(error.how_to_fix)
    if as_json:
        text = json.dumps({"code": error.code, "message": message, "fix": fix}, ensure_ascii=only_ascii(sys.stderr))
    else:
        text = f"error [{error.code}] {message}" + (f"\n  fix: {fix}" if fix else "")
    print(text, file=sys.stderr)
    return exit_code(error)
