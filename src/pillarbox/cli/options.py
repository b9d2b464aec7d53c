"""The options that several commands share, spelled once. A None was not given: file and environment decide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="Database URL. Better in PILLARBOX_DATABASE or the file: a password on a command line shows in `ps`.",
    ),
]
Broker = Annotated[
    str | None,
    typer.Option("--broker", metavar="URL", help="Broker URL: kafka://, amqp://, amqps://, embedded:///path."),
]
TablePrefix = Annotated[
    str | None,
    typer.Option(
        "--table-prefix", metavar="TEXT", help="What the names of the outbox's tables begin with, e.g. shop_."
    ),
]
OutboxName = Annotated[
    str | None, typer.Option("--outbox", metavar="NAME", help="The one of [outboxes] in the settings file.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file (default: PILLARBOX_CONFIG, else pillarbox.toml)."),
]


def positive_seconds(value: float | None) -> float | None:
    """Callback of an option: refuses what is no length of time, NaN and a century included."""
    if value is not None and not 0 < value <= 86_400:
        raise typer.BadParameter(f"{value:g} is not between 0 and 86400 seconds")
    return value


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object; errors too, on stderr.")]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info (default), warning or error.")
]
LogJson = Annotated[bool | None, typer.Option("--log-json", help="Log JSON lines instead of text.")]
