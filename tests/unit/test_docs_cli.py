"""docs/cli.md has a section for each command that names its options, and the table of exit codes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from pillarbox.cli.app import app
from pillarbox.cli.exit_codes import ExitCode
from pillarbox.config import RelayConfig

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `(pillarbox[^`]*)`\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def leaves(command: Any, path: str = "pillarbox") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, f"{path} {name}")


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_its_section_with_its_options(name: str) -> None:
    section = SECTIONS[name]
    for parameter in COMMANDS[name].params:
        for option in parameter.opts:
            if option.startswith("--") and option != "--help":
                assert f"`{option}`" in section or f"`{option} " in section, option


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_option_says_in_the_help_what_it_does(name: str) -> None:
    assert COMMANDS[name].help
    for parameter in COMMANDS[name].params:
        assert parameter.opts == ["--help"] or parameter.help, parameter.name


def test_the_help_of_relay_names_the_defaults_of_its_settings() -> None:
    settings = {"batch", "lease", "broker_deadline", "stop_deadline", "processes", "ownership", "on_failure"}
    helps = {parameter.name: parameter.help for parameter in COMMANDS["pillarbox relay"].params}
    for name in settings:
        default = getattr(RelayConfig(), name)
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert re.search(rf"\bdefault {shown}\b|\b{shown}\b.*\(default\)", helps[name]), name


def test_no_section_describes_a_command_or_option_that_is_gone() -> None:
    assert set(SECTIONS) == set(COMMANDS)
    for name, section in SECTIONS.items():
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        table = [line for line in section.splitlines() if line.startswith("| `--")]
        assert {re.match(r"\| `(--[a-z-]+)", line).group(1) for line in table} <= known  # type: ignore[union-attr]


@pytest.mark.parametrize("code", ExitCode)
def test_each_exit_code_is_in_the_table(code: ExitCode) -> None:
    assert re.search(rf"^\| {code.value} \| `{code.name}` \|", TEXT, re.MULTILINE)
