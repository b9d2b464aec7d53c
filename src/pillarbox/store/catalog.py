"""What the database's catalogue says about our tables, asked and answered in the names without prefix."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from .naming import Naming, naming_of


def has_table(connection: Connection, name: str, naming: Naming | None = None) -> bool:
    """Whether the table is there. Asks the catalogue: a failing SELECT would spoil a PostgreSQL transaction.

    ``naming`` is that of the connection's engine unless given, for connections of the application.
    """
    return inspect(connection).has_table((naming or naming_of(connection)).name(name))


def has_view(connection: Connection, name: str) -> bool:
    """Whether the view is there."""
    return naming_of(connection).name(name) in inspect(connection).get_view_names()


def columns(connection: Connection, table: str) -> set[str]:
    """The names of its columns."""
    return {column["name"] for column in inspect(connection).get_columns(naming_of(connection).name(table))}


def indexes(connection: Connection, table: str) -> set[str]:
    """The names of its indexes."""
    naming = naming_of(connection)
    return {naming.ours(str(one["name"])) for one in inspect(connection).get_indexes(naming.name(table))}


def checks(connection: Connection, table: str) -> set[str]:
    """The names of its CHECK constraints."""
    naming = naming_of(connection)
    return {naming.ours(str(one["name"])) for one in inspect(connection).get_check_constraints(naming.name(table))}
