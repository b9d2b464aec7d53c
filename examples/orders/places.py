"""A database for each service and a virtual host of their own, on the servers that ``make services`` has started."""

import os
import urllib.error
import urllib.request
from base64 import b64encode

from sqlalchemy import create_engine, make_url, text

from services import control

NAME = "pillarbox_example"


def make_places() -> None:
    """Set the three URLs of :mod:`.settings`, unless they are set; what an earlier run left there is dropped."""
    servers = control.urls()
    if "ORDERS_DATABASE" not in os.environ:
        os.environ["ORDERS_DATABASE"] = fresh_database(servers["PILLARBOX_TEST_MYSQL"], f"{NAME}_orders")
    if "STOCK_DATABASE" not in os.environ:
        os.environ["STOCK_DATABASE"] = fresh_database(servers["PILLARBOX_TEST_POSTGRES"], f"{NAME}_stock")
    if "ORDERS_BROKER" not in os.environ:
        broker, management = servers["PILLARBOX_TEST_RABBITMQ"], servers["PILLARBOX_TEST_RABBITMQ_MANAGEMENT"]
        fresh_virtual_host(management)
        os.environ["ORDERS_BROKER"] = broker.removesuffix("%2F") + NAME


def fresh_database(server: str, name: str) -> str:
    """An empty database of this name beside the one that the URL names; returns its URL."""
    url = make_url(server)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        force = " WITH (FORCE)" if url.get_backend_name() == "postgresql" else ""
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}{force}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.set(database=name).render_as_string(hide_password=False)


def fresh_virtual_host(management: str) -> None:
    """An empty virtual host, through RabbitMQ's management API."""
    url = make_url(management)
    login = b64encode(f"{url.username}:{url.password}".encode()).decode()
    for method in ("DELETE", "PUT"):
        path = f"http://{url.host}:{url.port}/api/vhosts/{NAME}"
        request = urllib.request.Request(path, method=method, headers={"Authorization": f"Basic {login}"})
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            if not (method == "DELETE" and error.code == 404):
                raise
