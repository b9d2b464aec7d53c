"""`pillarbox config show`: every setting, its value and where that came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..options import AsJson, Broker, ConfigFile, Database

if TYPE_CHECKING:
    from rich.table import Table

    from ...config import Loaded

app = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@app.command("show")
def show_settings(
    config: ConfigFile = None, database: Database = None, broker: Broker = None, json: AsJson = False
) -> None:
    """Print each setting, its value and where it came from; passwords are masked."""
    from ..output import show
    from ..settings import read

    loaded = read(config, {"database": database, "broker": broker})
    value = {
        "file": str(loaded.file) if loaded.file else None,
        "settings": [{"key": s.key, "value": s.value, "source": s.source} for s in loaded.settings()],
        "warnings": list(loaded.warnings),
    }
    show(value, json_wanted=json, people=lambda: _table(loaded))


def _table(loaded: Loaded) -> Table:
    from rich.table import Table

    table = Table("setting", "value", "from", box=None)
    for setting in loaded.settings():
        table.add_row(setting.key, "-" if setting.value is None else str(setting.value), setting.source)
    return table


@app.callback()
def group() -> None:
    """Look at the settings."""
