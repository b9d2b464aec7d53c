"""`pillarbox init`: create or migrate the tables, or print the DDL for those who may."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..options import AsJson, ConfigFile, Database


class Part(StrEnum):
    """Which tables."""

    OUTBOX = "outbox"
    INBOX = "inbox"
    ALL = "all"


class Dialect(StrEnum):
    """The dialects that DDL can be printed for."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    MARIADB = "mariadb"
    SQLITE = "sqlite"


def init(
    database: Database = None,
    part: Annotated[
        Part, typer.Option("--part", help="outbox: the producer's side; inbox: the consumer's.")
    ] = Part.ALL,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the DDL and change nothing; no connection is made.")
    ] = False,
    dialect: Annotated[
        Dialect | None, typer.Option("--dialect", help="With --sql: the dialect (default: that of the database URL).")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Create the tables or migrate them to this release; running it again changes nothing."""
    from ...masking import mask_whole_url
    from ...store.install import PARTS, ddl, install
    from ...wiring import database_url, dialect_name, open_engine
    from ..output import as_json, say
    from ..settings import settings

    parts = PARTS if part is Part.ALL else tuple(one for one in PARTS if one == part.value)
    found = settings(config, database=database)
    if sql:
        name = dialect.value if dialect else dialect_name(database_url(found))
        text = ddl(name, parts)
        as_json({"dialect": name, "sql": text}) if json else say(text)
        return
    if dialect is not None:
        raise typer.BadParameter("only together with --sql: a database knows its own dialect", param_hint="--dialect")
    with open_engine(found) as engine:
        done = install(engine, parts)
    if json:
        as_json({"database": mask_whole_url(database_url(found)), "done": done})
    else:
        for sentence in done:
            say(sentence)
