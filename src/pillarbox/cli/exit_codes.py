"""What the exit code of every command means. Scripts and supervisors may rely on it; ``docs/cli.md`` has the table."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from .. import errors


class ExitCode(IntEnum):
    """The meaning of each exit code."""

    OK = 0
    """Done, or the answer is yes."""
    FAILED = 1
    """It could not be done, or the answer is no (nothing matched, events left unsent)."""
    USAGE = 2
    """The command line itself is wrong."""
    CONFIG = 3
    """A setting, URL, driver or consumer name is wrong: trying again will not help."""
    UNAVAILABLE = 4
    """A database or broker is away, a port is taken, or another `init` or `prune` is at work: try again later."""
    TABLES = 5
    """The tables are missing or of another version: run `pillarbox init`."""
    REFUSED = 6
    """User, password or permission was refused."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


_BY_ERROR: Final[dict[type[errors.PillarboxError], ExitCode]] = {
    errors.ConfigError: ExitCode.CONFIG,
    errors.BadUrl: ExitCode.CONFIG,
    errors.MissingDriver: ExitCode.CONFIG,
    errors.DeadlineTooLong: ExitCode.CONFIG,
    errors.BadHandler: ExitCode.CONFIG,
    errors.BadConsumer: ExitCode.CONFIG,
    errors.NotImportable: ExitCode.CONFIG,
    errors.PartitionsUnfit: ExitCode.CONFIG,
    errors.DatabaseUnavailable: ExitCode.UNAVAILABLE,
    errors.BrokerUnavailable: ExitCode.UNAVAILABLE,
    errors.InitBusy: ExitCode.UNAVAILABLE,
    errors.PrunerElsewhere: ExitCode.UNAVAILABLE,
    errors.CannotListen: ExitCode.UNAVAILABLE,
    errors.LeaseMismatch: ExitCode.CONFIG,
    errors.RelayIdTaken: ExitCode.CONFIG,
    errors.BadTablePrefix: ExitCode.CONFIG,
    errors.TablesMissing: ExitCode.TABLES,
    errors.SchemaMismatch: ExitCode.TABLES,
    errors.AccessRefused: ExitCode.REFUSED,
}


def exit_code(error: errors.PillarboxError) -> ExitCode:
    """The exit code of a command that ended with ``error``."""
    return next((code for kind, code in _BY_ERROR.items() if isinstance(error, kind)), ExitCode.FAILED)
