"""The command line's settings: one frozen tree, filled from file, environment and flags, in this order.

Only the command line reads it. Library objects (Outbox, Relay, Consumer, …) know nothing but their arguments.
"""

from .loading import Loaded, Setting, load
from .models import Config, KeepTime, LogConfig, OutboxConfig, Rate, RelayConfig, RetentionConfig, RetryConfig
from .names import FILE_NAME, FILE_VARIABLE, FLAGS, PREFIX, variable
from .outboxes import alone, of_outbox, only_outbox
from .sources import keys

__all__ = [
    "FILE_NAME",
    "FILE_VARIABLE",
    "FLAGS",
    "PREFIX",
    "Config",
    "KeepTime",
    "Loaded",
    "LogConfig",
    "OutboxConfig",
    "Rate",
    "RelayConfig",
    "RetentionConfig",
    "RetryConfig",
    "Setting",
    "alone",
    "keys",
    "load",
    "of_outbox",
    "only_outbox",
    "variable",
]
