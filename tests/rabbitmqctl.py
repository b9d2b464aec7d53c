"""``rabbitmqctl`` for the node that ``python -m services`` started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from services.place import Place, user_for
from services.rabbitmq import RabbitMQ

TOOL = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")


def rabbitmqctl(*arguments: str) -> str:
    """Run one command and return what it prints; skips the test when the node is not ours."""
    server = RabbitMQ(Place.of_checkout())
    if not server.running() or not TOOL.exists():
        pytest.skip("needs the RabbitMQ node of `python -m services up rabbitmq`")
    owner = user_for("rabbitmq")
    done = subprocess.run(
        [TOOL, "-q", *arguments],
        env=server._environment(owner),
        user=owner,
        extra_groups=None if owner is None else [],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
