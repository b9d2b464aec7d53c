"""The argument tree. Each command is one file; this list is all there is."""

from __future__ import annotations

from typing import Annotated

import typer

from .commands import config, consume, dead, dead_letters, demo, effects, held, inbox, init, lab, prune, relay, status

app = typer.Typer(
    name="pillarbox",
    help="A transactional outbox: bring committed events to a broker, apply them once, and see how it goes.",
    epilog="Settings: pillarbox.toml < PILLARBOX_… < options; `pillarbox config show` prints them with their source.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, passwords included
)

app.command("init")(init.init)
app.command("relay")(relay.relay)
app.command("consume")(consume.consume)
app.command("status")(status.status)
app.add_typer(dead.app, name="dead")
app.add_typer(held.app, name="held")
app.command("prune")(prune.prune)
app.add_typer(inbox.app, name="inbox")
app.add_typer(effects.app, name="effects")
app.add_typer(dead_letters.app, name="dead-letters")
app.command("demo")(demo.demo)
app.add_typer(lab.app, name="lab")
app.add_typer(config.app, name="config")


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"pillarbox {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A transactional outbox: bring committed events to a broker, apply them once, and see how it goes."""
