"""What only RabbitMQ's management API can tell: the names on a virtual host, a queue's members and leader."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ...publish.rabbitmq.url import RabbitUrl

_PORT: Final = 15672
_TLS_PORT: Final = 15671
_DEADLINE: Final = 5.0


class NoManagement(Exception):
    """The management API cannot be asked; the text says why."""


class Management:
    """The API of one virtual host: at the URL's option ``management``, or the usual port of its first host.

    Once it has not answered it is not asked again: a firewall that drops everything would cost its deadline each time.
    """

    def __init__(self, url: RabbitUrl) -> None:
        node = url.nodes[0]
        host = f"[{node.host}]" if ":" in node.host else node.host
        usual = f"https://{host}:{_TLS_PORT}" if node.ssl_options else f"http://{host}:{_PORT}"
        address = urlsplit(url.management or usual)
        login = f"{node.credentials.username}:{node.credentials.password}"
        self._headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
        self._base = f"{address.scheme}://{address.netloc.rpartition('@')[2]}/api"
        self._away: NoManagement | None = None
        self._vhost = quote(node.virtual_host, safe="")
        self._tls = node.ssl_options.context if node.ssl_options and address.scheme == "https" else None

    def queue(self, name: str) -> Mapping[str, Any] | None:
        """All about a queue; None where there is none. Figures lag behind by some seconds."""
        found: Mapping[str, Any] | None = self._get(f"queues/{self._vhost}/{quote(name, safe='')}")
        return found

    def names(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """The names of all ``queues`` or ``exchanges``, and their arguments."""
        listed = self._get(f"{kind}/{self._vhost}?columns=name,arguments") or ()
        return {one["name"]: one.get("arguments") or {} for one in listed}

    def _get(self, path: str) -> Any:
        if self._away is not None:
            raise self._away
        request = urllib.request.Request(f"{self._base}/{path}", headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=_DEADLINE, context=self._tls) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code in (401, 403):
                raise NoManagement("the user has no tag `management` on RabbitMQ") from error
            raise NoManagement(f"RabbitMQ's management API answers with HTTP {error.code}") from error
        except (OSError, ValueError) as error:  # a URLError is an OSError
            self._away = NoManagement(f"RabbitMQ's management API does not answer at {self._base}: {error}")
            raise self._away from error
