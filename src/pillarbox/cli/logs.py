"""Logging of the command line: text or JSON lines on stderr. The library itself never configures logging."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from ..config import LogConfig
from ..masking import mask_url

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(settings: LogConfig) -> None:
    """Send everything from ``pillarbox.*`` at the chosen level, and other loggers' warnings, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.json_lines else Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pillarbox").setLevel(settings.level.upper())
    # pika tells of every failed reconnect with tracebacks; our own publisher and consumer say it once, in a sentence.
    logging.getLogger("pika").setLevel(logging.CRITICAL)


class Text(logging.Formatter):
    """``2026-11-30 18:40:01 INFO relay: message``, in UTC."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).strftime(datefmt or "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return mask_url(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever was passed as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_url(record.getMessage()),
        }
        entry.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            entry["exception"] = mask_url(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)
