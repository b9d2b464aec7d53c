"""Bad input: one clear sentence with code and fix, its own exit code, no traceback; nothing is changed.

Each kind is shown by a real process; the other commands and servers that must answer alike run in this one.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Cli, Inline

NOBODY = "127.0.0.1:1"
NEEDS_TABLES = (["status"], ["relay"], ["dead", "list"], ["dead", "replay", "--all"])
NEEDS_DATABASE = (*NEEDS_TABLES, ["init"])
Without = Callable[..., dict[str, str]]


@pytest.fixture
def without(tmp_path: Path) -> Without:
    """The environment of a process in which these packages are not installed."""

    def environment(*modules: str) -> dict[str, str]:
        folder = tmp_path / "site"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(
            "import sys\n"
            "class Absent:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name.split('.')[0] in {modules!r}:\n"
            "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
            "sys.meta_path.insert(0, Absent())\n",
            encoding="utf-8",
        )
        return {"PYTHONPATH": str(folder)}

    return environment


def with_database(url: str) -> dict[str, str]:
    return {"PILLARBOX_DATABASE": url, "PILLARBOX_BROKER": "embedded:///log.db"}


# URLs and drivers -------------------------------------------------------------------------------------------------


def test_a_bad_database_url(cli: Cli) -> None:
    refused = cli.run("status", env=with_database("nonsense"))
    assert refused.code == 3
    refused.says("error [PB-002]", "fix: ")


@pytest.mark.parametrize("command", NEEDS_DATABASE, ids=" ".join)
@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "oracle://u:geheim@h/db",
        "mysql+nosuch://u:geheim@h/db",
        "mysql://h:x/db",
        "mysql://u:p@ss:w/geheim@h/db",
    ],
)
def test_a_bad_database_url_is_refused_by_every_command(inline: Inline, command: list[str], url: str) -> None:
    refused = inline.run(*command, env=with_database(url))
    assert refused.code == 3
    refused.says("error [PB-00", "fix: ")
    assert "geheim" not in refused.err


def test_a_bad_broker_url(cli: Cli, shop: Shop) -> None:
    refused = cli.run("relay", env=shop.env | {"PILLARBOX_BROKER": "ftp://u:geheim@h"})
    assert refused.code == 3
    refused.says("error [PB-002]", "'ftp'", "kafka")
    assert "geheim" not in refused.err


@pytest.mark.parametrize("url", ["nonsense", "kafka://", "amqp://h:port", "embedded://"])
def test_a_broker_url_that_names_no_place_is_refused(inline: Inline, shop: Shop, url: str) -> None:
    inline.run("relay", env=shop.env | {"PILLARBOX_BROKER": url}).says("error [PB-002]", "fix: ")


@pytest.mark.parametrize(
    ("url", "module", "line"),
    [
        ("mysql://u@h/db", "pymysql", "pip install 'pillarbox[mysql]'"),
        ("postgresql://u@h/db", "psycopg", "pip install 'pillarbox[postgres]'"),
    ],
)
def test_a_missing_database_driver_names_the_install_line(
    cli: Cli, without: Without, url: str, module: str, line: str
) -> None:
    refused = cli.run("status", env=without(module) | with_database(url))
    assert refused.code == 3
    refused.says("error [PB-003]", line)


@pytest.mark.parametrize(
    ("url", "module", "line"),
    [
        ("kafka://h:9092", "confluent_kafka", "pip install 'pillarbox[kafka]'"),
        ("amqp://h", "pika", "pip install 'pillarbox[rabbitmq]'"),
    ],
)
def test_a_missing_broker_client_names_the_install_line(
    cli: Cli, shop: Shop, without: Without, url: str, module: str, line: str
) -> None:
    refused = cli.run("relay", env=without(module) | shop.env | {"PILLARBOX_BROKER": url})
    assert refused.code == 3
    refused.says("error [PB-003]", line)


# Servers ----------------------------------------------------------------------------------------------------------


def test_a_database_server_that_is_not_there(cli: Cli) -> None:
    refused = cli.run("relay", env=with_database(f"postgresql://u:geheim@{NOBODY}/db"))
    assert refused.code == 4
    refused.says("error [PB-004]", NOBODY, "fix: ")
    assert "geheim" not in refused.err


@pytest.mark.parametrize("command", NEEDS_DATABASE, ids=" ".join)
@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_missing_server_is_told_by_every_command(inline: Inline, command: list[str], scheme: str) -> None:
    refused = inline.run(*command, env=with_database(f"{scheme}://u:geheim@{NOBODY}/db"))
    assert refused.code == 4
    refused.says("error [PB-004]", NOBODY, "fix: ")
    assert "geheim" not in refused.err


@pytest.mark.parametrize("database_name", ["mysql", "postgres", "mariadb102"], indirect=True)
def test_a_refused_user_or_password(cli: Cli, database_url: str) -> None:
    wrong = make_url(database_url).set(username="nobody_here", password="geheim").render_as_string(hide_password=False)
    refused = cli.run("init", env=with_database(wrong))
    assert refused.code == 6
    refused.says("error [PB-008]", "fix: ")
    assert "geheim" not in refused.err


def test_a_broker_that_refuses_the_password_ends_the_relay_instead_of_letting_it_wait(
    cli: Cli, shop: Shop, rabbitmq_url: str
) -> None:
    host = rabbitmq_url.split("@", 1)[1]
    refused = cli.run("relay", env=shop.env | {"PILLARBOX_BROKER": f"amqp://guest:geheim@{host}"})
    assert refused.code == 6
    refused.says("error [PB-008]", "fix: ")
    assert "geheim" not in refused.err


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--database", f"mysql://u:geheim@{NOBODY}/x"], 4, "PB-004"),
        (["--broker", f"amqp://u:geheim@{NOBODY}"], 4, "PB-005"),
        (["--broker", "ftp://u:geheim@h"], 3, "PB-002"),
    ],
    ids=str,
)
def test_the_demo_refuses_like_every_other_command(cli: Cli, options: list[str], code: int, error: str) -> None:
    refused = cli.run("demo", "--only", "outbox", "--orders", "1", *options)
    assert refused.code == code
    refused.says(f"[{error}]", "fix: ")
    assert "geheim" not in refused.err


# Tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", NEEDS_TABLES, ids=" ".join)
def test_a_sqlite_file_that_is_not_there_is_not_made_by_looking_at_it(inline: Inline, command: list[str]) -> None:
    refused = inline.run(*command, env=with_database("sqlite:///typo.db"))
    assert refused.code == 5
    refused.says("error [PB-006]", "typo.db", "pillarbox init")
    assert not (inline.folder / "typo.db").exists()


def test_missing_tables(cli: Cli, sqlite_url: str) -> None:
    relay_engine(sqlite_url).connect().close()  # the file exists now
    refused = cli.run("relay", env=with_database(sqlite_url))
    assert refused.code == 5
    refused.says("error [PB-006]", "outbox_meta", "pillarbox init")


def test_tables_of_another_version(cli: Cli, shop: Shop) -> None:
    shop.execute("UPDATE outbox_meta SET schema_version = 99")
    refused = cli.run("relay", env=shop.env)
    assert refused.code == 5
    refused.says("error [PB-007]", "99", "pillarbox init")


@pytest.mark.parametrize("database_name", ["mysql", "mysql57", "mariadb", "postgres"], indirect=True)
def test_missing_tables_and_another_version_on_each_server(inline: Inline, database_url: str) -> None:
    env = with_database(database_url)
    refused = inline.run("dead", "list", env=env)
    assert refused.code == 5
    refused.says("error [PB-006]", "pillarbox init")

    Shop.made(database_url, "").execute("UPDATE outbox_meta SET schema_version = 99")
    refused = inline.run("status", env=env)
    assert refused.code == 5
    refused.says("error [PB-007]", "99", "pillarbox init")


# Names ------------------------------------------------------------------------------------------------------------


def test_a_consumer_whose_module_fails(cli: Cli) -> None:
    (cli.folder / "broken.py").write_text("\n1 / 0\n", encoding="utf-8")
    refused = cli.run("consume", "broken:consumer")
    assert refused.code == 3
    refused.says("error [PB-051]", "ZeroDivisionError", "broken.py:2", "fix: ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "does not name a module"),
        ("no.such.module:consumer", "No module named 'no'"),
        ("json:missing", "no attribute 'missing'"),
        ("json:dumps", "is a function, not a Consumer"),
    ],
)
def test_a_consumer_that_is_not_there(inline: Inline, name: str, said: str) -> None:
    refused = inline.run("consume", name)
    assert refused.code == 3
    refused.says("error [PB-051]", said, "fix: ")


def test_options_that_do_not_go_together_are_usage_errors(inline: Inline) -> None:
    assert inline.run("init", "--dialect", "mysql").says("--sql").code == 2
    assert inline.run("relay", "--timeout", "5").says("--until-empty").code == 2
