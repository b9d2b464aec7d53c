"""Version, help, settings and usage errors of the real command."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pillarbox

from .processes import Cli, Inline, environment

COMMANDS = (
    ["init"],
    ["relay"],
    ["consume"],
    ["status"],
    ["dead", "list"],
    ["dead", "show"],
    ["dead", "replay"],
    ["demo"],
    ["config", "show"],
)


def test_version_is_the_packages(cli: Cli) -> None:
    assert cli.run("--version").out == f"pillarbox {pillarbox.__version__}\n"


def test_help_lists_the_commands_and_loads_no_database_or_broker_client(cli: Cli) -> None:
    shown = cli.run("--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert shown.code == 0
    assert all(command[0] in shown.out for command in COMMANDS)
    for heavy in ("sqlalchemy", "pydantic", "alembic", "confluent_kafka", "pika", "pymysql", "psycopg"):
        assert f"| {heavy}\n" not in shown.err.replace("|  ", "| "), heavy


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_mistyped_option_is_a_usage_error(inline: Inline, command: list[str]) -> None:
    refused = inline.run(*command, "--no-such-option")
    assert refused.code == 2
    refused.says("--no-such-option")


def test_config_show_says_where_each_value_came_from_and_masks_passwords(inline: Inline, tmp_path: Path) -> None:
    (tmp_path / "pillarbox.toml").write_text("[relay]\nbatch = 5\n", encoding="utf-8")
    env = {"PILLARBOX_DATABASE": "mysql://app:geheim@db/shop", "PILLARBOX_RELAY__BACTH": "1"}

    shown = inline.run("config", "show", "--broker", "kafka://u:geheim@k", "--json", env=env)

    found = {one["key"]: (one["value"], one["source"]) for one in shown.json["settings"]}
    assert found["database"] == ("mysql://app:***@db/shop", "environment PILLARBOX_DATABASE")
    assert found["broker"] == ("kafka://u:***@k", "flag --broker")
    assert found["relay.batch"] == (5, "file pillarbox.toml")
    assert found["relay.lease"] == (60, "default")
    assert "PILLARBOX_RELAY__BACTH is no setting" in shown.err
    assert "geheim" not in shown.out + shown.err
    table = inline.run("config", "show", env=env)
    assert "relay.batch" in table.out
    assert "geheim" not in table.out


def test_an_unknown_key_in_the_file_stops_every_command_that_reads_it(inline: Inline, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[relay]\nbacth = 5\n", encoding="utf-8")
    for command in (["status"], ["relay"], ["init"], ["config", "show"], ["dead", "list"], ["consume", "a:b"]):
        refused = inline.run(*command, "--config", "other.toml")
        assert refused.code == 3
        refused.says("[PB-001] relay.bacth in other.toml", "Did you mean relay.batch?")


def test_with_json_an_error_is_an_object_with_code_message_and_fix(cli: Cli) -> None:
    refused = cli.run("status", "--json")
    assert refused.code == 3
    assert refused.out == ""
    error = json.loads(refused.err)
    assert error["code"] == "PB-001"
    assert error["message"] == "No database is given."
    assert "PILLARBOX_DATABASE=" in error["fix"]


def test_log_lines_can_be_json(inline: Inline) -> None:
    env = {"PILLARBOX_LOG__JSON_LINES": "1", "PILLARBOX_NONSENSE": "1"}
    shown = inline.run("config", "show", "--json", env=env)
    line = json.loads(shown.err)
    assert line["level"] == "warning"
    assert line["logger"] == "pillarbox.config"
    assert line["message"].startswith("PILLARBOX_NONSENSE is no setting")


@pytest.mark.parametrize("redirected", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_silence_and_no_failure(tmp_path: Path, redirected: str) -> None:
    done = in_a_shell(f"config show {redirected}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, done.stdout, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["config show", "config show --json"])
def test_a_full_disk_behind_the_output_is_said_in_a_sentence(tmp_path: Path, command: str) -> None:
    done = in_a_shell(f"{command} > /dev/full", tmp_path)
    assert done.returncode == 1
    assert b"error: the output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_terminal_that_knows_only_ascii_gets_escapes_and_valid_json(tmp_path: Path) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PILLARBOX_DATABASE": "mysql://zoë@h/lädchen"}
    assert in_a_shell("--help", tmp_path, ascii_only).returncode == 0
    assert in_a_shell("config show", tmp_path, ascii_only).returncode == 0
    shown = in_a_shell("config show --json", tmp_path, ascii_only)
    assert json.loads(shown.stdout.decode("ascii"))["settings"][0]["value"] == "mysql://zoë@h/lädchen"
    refused = in_a_shell("status --json", tmp_path, ascii_only | {"PILLARBOX_DATABASE": "nö"})
    assert "nö" in json.loads(refused.stderr.decode("ascii"))["message"]


def test_a_reader_that_had_enough_gets_no_traceback(tmp_path: Path) -> None:
    done = in_a_shell("config show | true", tmp_path)
    assert done.stderr == b""


def in_a_shell(command: str, folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    line = f"{shlex.quote(sys.executable)} -m pillarbox {command}"
    return subprocess.run(
        line, shell=True, cwd=folder, env=environment(env), capture_output=True, timeout=60, check=False
    )
