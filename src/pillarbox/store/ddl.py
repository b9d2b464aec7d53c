"""The DDL as text, and what users' own migrations need to know about our tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Dialect, MetaData, make_url

from ..errors import BadUrl
from . import view
from .naming import Naming, naming_of
from .prune.archive import archive_metadata
from .schema import INBOX_VERSION_TABLE, VERSION_TABLE, inbox_metadata, outbox_metadata

Part = Literal["outbox", "inbox"]
PARTS: Final[tuple[Part, ...]] = ("outbox", "inbox")
DIALECTS: Final = ("mysql", "mariadb", "postgresql", "sqlite")

VERSION_TABLES: Final[Mapping[Part, str]] = {"outbox": VERSION_TABLE, "inbox": INBOX_VERSION_TABLE}
METADATA: Final[Mapping[Part, MetaData]] = {"outbox": outbox_metadata, "inbox": inbox_metadata}
OUR_TABLES: Final = frozenset(
    {*outbox_metadata.tables, *inbox_metadata.tables, *archive_metadata.tables, *VERSION_TABLES.values()}
)


def ddl(dialect_name: str, parts: Sequence[Part] = PARTS, *, since: str | None = None, table_prefix: str = "") -> str:
    """All statements that an empty database needs, ready to be run by a client such as ``psql`` or ``mysql``.

    ``dialect_name``: mysql, mariadb, postgresql or sqlite. The text comes from the same migrations as ``install``, and
    includes the version table, so that a later ``install`` knows where it stands. ``since``: only what tables of that
    revision need to become those of this release. ``table_prefix`` goes before the names of the outbox's tables.
    """
    naming = Naming(table_prefix)
    if dialect_name not in DIALECTS:
        raise BadUrl(f"Pillarbox has no tables for {dialect_name!r}, only for {', '.join(DIALECTS)}.")
    return "\n".join(naming(_ddl_of(part, dialect_name, since)) for part in parts)


def _ddl_of(part: Part, dialect_name: str, since: str | None) -> str:
    text = StringIO()
    one_transaction = dialect_name in ("postgresql", "sqlite")
    dialect = make_url(f"{dialect_name}://").get_dialect()()
    dialect.insert_returning = False  # older servers lack it, and a script has no use for the answer
    context = migration(
        part,
        dialect=dialect,
        as_sql=True,
        output_buffer=text,
        transactional_ddl=one_transaction,
        starting_rev=since,
    )
    with context.begin_transaction():
        context.run_migrations(op=Operations(context))
        if part == "outbox":
            context.impl.static_output(f"{view.DROP};\n\n{view.create(dialect_name)};\n")
        if not one_transaction:
            context.impl.static_output("COMMIT;")  # MySQL: the version row, for a client without autocommit
    return f"-- Pillarbox: the {part} for {dialect_name}\n\n{text.getvalue().strip()}\n"


def migration(
    part: Part,
    *,
    connection: Connection | None = None,
    dialect: Dialect | None = None,
    to: str | None = None,
    **options: Any,
) -> MigrationContext:
    """Alembic's context for one part's history, without an env.py and without its process-wide ``op``.

    It leads to the newest revision, or back ``to`` an older one.
    """
    directory = scripts(part)

    def steps(revision: Any, _context: object) -> Any:
        return directory._upgrade_revs("head", revision) if to is None else directory._downgrade_revs(to, revision)

    naming = naming_of(connection) if connection is not None else Naming()
    options["version_table"] = naming.name(VERSION_TABLES[part])
    options["fn"] = steps
    return MigrationContext.configure(connection=connection, dialect=dialect, opts=options)


def scripts(part: Part) -> ScriptDirectory:
    """The packaged migration scripts of one part."""
    folder = str(Path(__file__).parent / "migrations" / part)
    return ScriptDirectory(folder, version_locations=[folder])


def include_object(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    """For your own Alembic ``env.py``: leaves Pillarbox's tables out of autogenerate.

    >>> include_object(None, "outbox_event", "table", True, None)
    False
    >>> include_object(None, "orders", "table", True, None)
    True

    Pass it to ``context.configure(..., include_object=pillarbox.include_object)``, or call it from your own. For tables
    with a prefix pass ``include_object_but("shop_", "billing_")``.
    """
    table = name if kind == "table" else getattr(getattr(item, "table", None), "name", None)
    return table not in OUR_TABLES


def include_object_but(*table_prefixes: str) -> Callable[[Any, str | None, str, bool, Any], bool]:
    """:func:`include_object` for outboxes with these prefixes, and the one without.

    >>> include_object_but("shop_")(None, "shop_outbox_event", "table", True, None)
    False
    """
    theirs = {Naming(prefix).name(name) for prefix in table_prefixes for name in OUR_TABLES}

    def include(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
        table = name if kind == "table" else getattr(getattr(item, "table", None), "name", None)
        return table not in theirs and include_object(item, name, kind, reflected, compare_to)

    return include
