"""A log in one SQLite file, used by the embedded publisher and consumer; below both, and knowing neither."""

from .log import DEFAULT_PARTITIONS, EmbeddedLog
from .records import NewRecord, Position, Record
from .url import EmbeddedUrl, parse_embedded_url

__all__ = [
    "DEFAULT_PARTITIONS",
    "EmbeddedLog",
    "EmbeddedUrl",
    "NewRecord",
    "Position",
    "Record",
    "parse_embedded_url",
]
