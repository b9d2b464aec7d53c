"""The deployment examples fit the program: options exist, probes meet the endpoints, times leave room to stop."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from pillarbox.cli.app import app
from pillarbox.cli.exit_codes import ExitCode
from pillarbox.cli.relays.parent import _GRACE
from pillarbox.config import RelayConfig
from pillarbox.observe.server import Address, _pages

FOLDER = Path(__file__).parents[2] / "deploy"
UNIT = (FOLDER / "pillarbox-relay.service").read_text()
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
DEPLOYMENT = next(one for one in DOCUMENTS if one["kind"] == "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PATHS = set(_pages(None, None))  # type: ignore[arg-type]


def check_command(words: list[str]) -> dict[str, str]:
    """The options of a `pillarbox …` command line, each of which exists."""
    command = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    options = {word for word in words if word.startswith("--")}
    known = {option for parameter in command.params for option in parameter.opts}
    assert options <= known
    return {option: words[words.index(option) + 1] for option in options if option != words[-1]}


def test_the_units_command_and_times_fit_the_program() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    command = shlex.split(settings["ExecStart"])
    Address.parse(check_command(["pillarbox", *command[1:]])["--http"])
    assert int(settings["TimeoutStopSec"]) > RelayConfig().stop_deadline + _GRACE
    hopeless = {ExitCode.USAGE, ExitCode.CONFIG, ExitCode.TABLES, ExitCode.REFUSED}
    assert set(map(int, settings["RestartPreventExitStatus"].split())) == hopeless


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "pillarbox-relay.service"
    here = UNIT.replace("/opt/pillarbox/bin/pillarbox", sys.executable).replace("User=pillarbox", "User=root")
    unit.write_text(here)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert str(unit) not in done.stderr, done.stderr
    assert "pillarbox-relay.service:" not in done.stderr, done.stderr


def test_each_kubernetes_object_has_what_the_api_asks_for() -> None:
    assert [one["kind"] for one in DOCUMENTS] == ["Job", "Deployment", "PodDisruptionBudget"]
    for one in DOCUMENTS:
        assert one["apiVersion"]
        assert re.fullmatch(r"[a-z0-9-]+", one["metadata"]["name"])
        template = one["spec"].get("template")
        selector = one["spec"].get("selector")
        if template and selector:
            assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert DOCUMENTS[2]["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]


def test_the_probes_meet_the_endpoints() -> None:
    port = Address.parse(check_command(CONTAINER["command"])["--http"]).port
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": port}]
    annotations = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]
    assert (annotations["prometheus.io/port"], annotations["prometheus.io/path"]) == (str(port), "/metrics")
    wanted = {"livenessProbe": "/health", "readinessProbe": "/ready", "startupProbe": "/health"}
    for probe, path in wanted.items():
        assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "http"}
        assert path in PATHS


def test_a_pod_has_time_to_finish() -> None:
    assert POD["terminationGracePeriodSeconds"] > RelayConfig().stop_deadline + _GRACE
