"""`pillarbox init`: create or migrate the tables, or print the DDL for those who may."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..options import AsJson, ConfigFile, Database, OutboxName, TablePrefix


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
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    part: Annotated[
        Part, typer.Option("--part", help="outbox: the producer's side; inbox: the consumer's.")
    ] = Part.ALL,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the DDL and change nothing; no connection is made.")
    ] = False,
    dialect: Annotated[
        Dialect | None, typer.Option("--dialect", help="With --sql: the dialect (default: that of the database URL).")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="REVISION", help="With --sql: only what tables of this revision need."),
    ] = None,
    downgrade: Annotated[
        str | None,
        typer.Option("--downgrade", metavar="REVISION", help="Take the outbox back to this revision, relays stopped."),
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Create the tables or migrate them to this release; running it again changes nothing."""
    from ...masking import mask_whole_url
    from ...store import install as tables
    from ...store.install import PARTS, ddl
    from ...wiring import database_url, dialect_name, open_engine
    from ..output import as_json, say
    from ..settings import settings_of_one

    if since is not None and not sql:
        raise typer.BadParameter("only together with --sql", param_hint="--since")
    if downgrade is not None and sql:
        raise typer.BadParameter("not with --sql", param_hint="--downgrade")
    parts = PARTS if part is Part.ALL else tuple(one for one in PARTS if one == part.value)
    one_part = parts[0]  # which revisions are meant: the outbox's, unless it is the inbox alone
    found = settings_of_one(config, outbox, database, table_prefix)
    if sql:
        name = dialect.value if dialect else dialect_name(database_url(found))
        text = ddl(
            name,
            parts if since is None else [one_part],
            since=since,
            table_prefix=found.table_prefix,
        )
        as_json({"dialect": name, "sql": text}) if json else say(text)
        return
    if dialect is not None:
        raise typer.BadParameter("only together with --sql: a database knows its own dialect", param_hint="--dialect")
    with open_engine(found) as engine:
        back = [tables.downgrade(engine, downgrade, part=one_part)] if downgrade else []
        done = back or tables.install(engine, parts)
    if json:
        as_json({"database": mask_whole_url(database_url(found)), "done": done})
    else:
        for sentence in done:
            say(sentence)
