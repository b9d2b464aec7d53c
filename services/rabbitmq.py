"""RabbitMQ 3.10 of Debian 12, one node, with its management API; user and password `guest`.

It has two processes: the node, and epmd, Erlang's port mapper. A node without epmd would start one that outlives it and
that nobody owns, so an own one is started first, on a port of its own.
"""

import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from services.apt import Package
from services.place import Place, port_is_free, user_for
from services.process import Process

# The script itself: the one on PATH insists on the package's own data folder and hides why a start fails.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
AMQP, DISTRIBUTION, MANAGEMENT, EPMD = 30, 31, 32, 33
CONFIGURATION = """\
listeners.tcp.default = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
disk_free_limit.absolute = 50MB
log.file.level = info
"""
# The distribution port listens on all addresses unless told; idle schedulers are not to spin on a small machine.
ERLANG = "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    place: Place
    name: str = "rabbitmq"
    needs: Sequence[Package] = (Package("rabbitmq-server"),)

    def settings(self) -> Mapping[str, str]:
        return {
            "PILLARBOX_TEST_RABBITMQ": f"amqp://guest:guest@127.0.0.1:{self.place.port(AMQP)}/%2F",
            "PILLARBOX_TEST_RABBITMQ_MANAGEMENT": self._management(),
        }

    def parts(self) -> Mapping[str, Process]:
        return {"epmd": Process.at(self.place, "epmd"), self.name: Process.at(self.place, self.name)}

    def fetch(self) -> None:
        """Nothing: the package is installed."""

    def running(self) -> bool:
        return all(process.pid() is not None for process in self.parts().values())

    def start(self) -> None:
        parts, owner = self.parts(), user_for("rabbitmq")
        environment = self._environment(owner)
        if parts["epmd"].pid() is None:
            parts["epmd"].spawn(["epmd"], user=owner, env=environment)
            epmd_port = self.place.port(EPMD)
            parts["epmd"].wait(lambda: not port_is_free(epmd_port), seconds=10)
        if parts[self.name].pid() is None:
            parts[self.name].spawn([SERVER], user=owner, env=environment)
        parts[self.name].wait(self._answers, seconds=90)

    def start_part(self, part: str) -> None:
        self.start()

    def end(self) -> None:
        parts = self.parts()
        parts[self.name].end(seconds=30)
        parts["epmd"].end()

    def _management(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.place.port(MANAGEMENT)}"

    def _environment(self, owner: str | None) -> dict[str, str]:
        """All that the node knows: nothing of the packaged configuration, nothing of ours."""
        home = self.place.path("data", self.name, owner=owner)
        configuration = home / "rabbitmq.conf"
        configuration.write_text(
            CONFIGURATION.format(amqp=self.place.port(AMQP), management=self.place.port(MANAGEMENT))
        )
        plugins = home / "enabled_plugins"
        plugins.write_text("[rabbitmq_management].\n")
        return {
            "HOME": str(home),  # where Erlang keeps its cookie
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            # Makes the script become the node, instead of waiting for it as a second process.
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.place.port(EPMD)),
            "RABBITMQ_NODENAME": "pillarbox@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.place.port(AMQP)),
            "RABBITMQ_DIST_PORT": str(self.place.port(DISTRIBUTION)),
            "RABBITMQ_MNESIA_BASE": str(self.place.path("data", self.name, "mnesia", owner=owner)),
            "RABBITMQ_LOG_BASE": str(self.place.path("data", self.name, "log", owner=owner)),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_CONF_ENV_FILE": str(home / "no-such-file"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        }

    def _answers(self) -> bool:
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            self.place.port(AMQP),
            socket_timeout=5,
            stack_timeout=5,
            blocked_connection_timeout=5,
        )
        try:
            pika.BlockingConnection(parameters).close()
        except (AMQPError, OSError):
            return False
        return self._management_answers()

    def _management_answers(self) -> bool:
        """The virtual host check; the older aliveness test leaves a queue behind."""
        url = f"http://127.0.0.1:{self.place.port(MANAGEMENT)}/api/health/checks/virtual-hosts"
        login = b64encode(b"guest:guest").decode()
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
