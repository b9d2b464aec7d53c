"""Creating and migrating the tables, one process at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import DBAPIError

from ..errors import ConfigError, InitBusy, SchemaMismatch, TablesMissing
from . import dbtime, view
from .catalog import columns, has_table, has_view
from .ddl import METADATA, PARTS, Part, ddl, include_object, migration, scripts
from .engines import BEGIN_OPTION
from .failures import Fault, fault_of
from .naming import PLAIN, Naming, naming_of, prefixed
from .schema import SINCE, inbox_effect, outbox_partition, outbox_relay

__all__ = ["PARTS", "Part", "ddl", "downgrade", "include_object", "install"]

_LOCK: Final = 0x70696C6C617262  # "pillarb": the advisory lock's number, the same for every process of one outbox


def install(
    engine: Engine, parts: Sequence[Part] = PARTS, *, deadline: float = 30.0, table_prefix: str = ""
) -> list[str]:
    """Create the tables of ``parts``, or migrate them to this release; says what it did, one sentence each.

    Can be run at any time, also while writers and relays work. Of two at once the second waits up to ``deadline``
    seconds. ``table_prefix`` goes before the names of the outbox's tables; the inbox's have none. Raises InitBusy
    (PB-009), SchemaMismatch (PB-007) for tables of a newer release, BadTablePrefix (PB-033).
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ConfigError(f"There is no part {unknown[0]!r}, only {' and '.join(PARTS)}.", fix='Pass e.g. ["inbox"].')
    engine = prefixed(engine, table_prefix)
    done: list[str] = []
    for naming, together in _locked_together(parts, naming_of(engine)):
        with engine.connect() as connection, _ALONE[connection.dialect.name](connection, deadline, naming):
            done += [_install(connection, part) for part in together]
    return done


def _locked_together(parts: Sequence[Part], naming: Naming) -> list[tuple[Naming, Sequence[Part]]]:
    """All of them, unless the outbox has a lock of its own: the inbox is everybody's."""
    if not naming.prefix:
        return [(naming, parts)]
    return [(naming if part == "outbox" else PLAIN, [part]) for part in parts]


def _install(connection: Connection, part: Part) -> str:
    context = migration(part, connection=connection, transactional_ddl=False)
    before, head = context.get_current_revision(), scripts(part).get_current_head()
    _check_known(scripts(part), before, part)
    if before == head and (part == "inbox" or has_view(connection, view.VIEW)):
        return f"The {part} is up to date (revision {head})."
    if before == head and not has_table(connection, outbox_relay.name):
        raise SchemaMismatch(
            "An earlier `init --downgrade` did not finish.", fix="Run it again; then `pillarbox init`, if you want."
        )
    _check_names_free(connection, part)
    _run(connection, context, part)
    return (
        f"Created the {part} (revision {head})." if before is None else f"Migrated the {part} from {before} to {head}."
    )


def _run(connection: Connection, context: MigrationContext, part: Part) -> None:
    """Without the view meanwhile: PostgreSQL refuses to change columns that a view shows."""
    if part == "outbox":
        connection.execute(text(view.DROP))
    context.run_migrations(op=Operations(context))
    if part == "outbox":
        has_partitions = has_table(connection, outbox_partition.name)
        connection.exec_driver_sql(view.create(connection.dialect.name, partition_table=has_partitions))


def downgrade(
    engine: Engine, revision: str, *, part: Part = "outbox", deadline: float = 30.0, table_prefix: str = ""
) -> str:
    """Take the outbox (or the inbox) back to an older ``revision``, for an older release; says what it did.

    Run it with the newer release and without relays (consumers); events and marks stay, and what the older tables
    cannot express (holds, later delivery) becomes a retry. The record of effects goes with its tables. Raises InitBusy
    (PB-009), also while relays live or effects are in doubt, SchemaMismatch (PB-007) for an unknown revision,
    TablesMissing (PB-006) where nothing is.
    """
    engine = prefixed(engine, table_prefix)
    naming = naming_of(engine) if part == "outbox" else PLAIN
    with engine.connect() as connection, _ALONE[connection.dialect.name](connection, deadline, naming):
        before = migration(part, connection=connection).get_current_revision()
        if before is None:
            raise TablesMissing(f"There is no {part} to take back.", fix="Nothing needs to be done.")
        _check_known(scripts(part), before, part)
        _check_known(scripts(part), revision, part)
        if revision >= before:
            return f"The {part} is at revision {before}; nothing to take back."
        (_check_no_relay_lives if part == "outbox" else _check_no_doubt)(connection)
        context = migration(part, connection=connection, to=revision, transactional_ddl=False)
        _run(connection, context, part)
        return f"Took the {part} back from {before} to {revision}."


def _check_no_relay_lives(connection: Connection) -> None:
    if not has_table(connection, outbox_relay.name):  # a downgrade that was killed half-way
        return
    living = select(outbox_relay.c.relay_id).where(outbox_relay.c.seen_until > text(dbtime.now(connection)))
    found = connection.scalars(living.order_by(outbox_relay.c.relay_id)).all()
    if found:
        raise InitBusy(f"Relays are at work on this outbox: {', '.join(found)}.", fix="Stop them first, all of them.")


def _check_no_doubt(connection: Connection) -> None:
    if not has_table(connection, inbox_effect.name):  # a downgrade that was killed half-way
        return
    doubtful = select(inbox_effect.c.effect_id).where(inbox_effect.c.state.in_(("started", "unknown"))).limit(1)
    if connection.scalars(doubtful).first() is not None:
        raise InitBusy("Effects are in doubt.", fix="`pillarbox effects list`, and resolve them: their record goes.")


def _check_names_free(connection: Connection, part: Part) -> None:
    """A table of one of our names is what an older release or a killed install left, or somebody else's: its columns
    tell. Those that a migration adds may be missing."""
    for table in METADATA[part].sorted_tables:
        if not has_table(connection, table.name):
            continue
        expected = {column.name for column in table.c if SINCE not in column.info}
        lacking = expected - columns(connection, table.name)
        if lacking:
            raise SchemaMismatch(
                f"There is a table {naming_of(connection).name(table.name)} already that is not Pillarbox's: "
                f"it has no {', '.join(sorted(lacking))}.",
                fix="Rename it, or give Pillarbox a database of its own.",
            )


def _check_known(directory: ScriptDirectory, revision: str | None, part: Part) -> None:
    try:
        if revision is not None:
            directory.get_revision(revision)
    except CommandError as error:
        raise SchemaMismatch(
            f"The {part} has revision {revision!r}, which this release does not know: a newer one made it.",
            fix="Run init with the newest release in use.",
        ) from error


# One at a time ----------------------------------------------------------------------------------------------------


@contextmanager
def _alone_on_postgresql(connection: Connection, deadline: float, naming: Naming) -> Iterator[None]:
    # READ COMMITTED: what the one before us created must be seen after the wait, not the snapshot from before it.
    connection.execution_options(isolation_level="READ COMMITTED")
    with connection.begin():
        connection.execute(text(f"SET LOCAL lock_timeout = {int(deadline * 1000)}"))
        with _busy_after(deadline):
            connection.execute(text(f"SELECT pg_advisory_xact_lock({naming.number(_LOCK)})"))
        yield


@contextmanager
def _alone_on_mysql(connection: Connection, deadline: float, naming: Naming) -> Iterator[None]:
    # The lock belongs to the session: DDL commits implicitly and would end any lock of the transaction.
    connection.execution_options(isolation_level="READ COMMITTED")
    name = naming.mysql_lock("pillarbox.")
    with connection.begin():
        wait = text(f"SELECT GET_LOCK({name}, {max(1, round(deadline))})")
        if connection.execute(wait).scalar() != 1:
            raise _busy(deadline)
    try:
        with connection.begin():  # committed before the next one gets the lock: not everything here is DDL
            yield
    finally:
        with connection.begin():
            connection.execute(text(f"SELECT RELEASE_LOCK({name})"))


@contextmanager
def _alone_on_sqlite(connection: Connection, deadline: float, _naming: Naming) -> Iterator[None]:
    # The write lock from the start. The engine's own listener may have begun, and must not wait there by its own time.
    connection.execution_options(**{BEGIN_OPTION: "DEFERRED"})
    with connection.begin():
        waited = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(deadline * 1000)}")
        if getattr(connection.connection.dbapi_connection, "in_transaction", False):
            connection.exec_driver_sql("ROLLBACK")
        try:
            with _busy_after(deadline):
                connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {waited}")
        yield


@contextmanager
def _busy_after(deadline: float) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if fault_of(error) is not Fault.BUSY:
            raise
        raise _busy(deadline) from error


def _busy(deadline: float) -> InitBusy:
    return InitBusy(f"Another process has been creating or migrating the tables for more than {deadline:g} s.")


_ALONE: Final = {
    "postgresql": _alone_on_postgresql,
    "mysql": _alone_on_mysql,
    "mariadb": _alone_on_mysql,
    "sqlite": _alone_on_sqlite,
}
