"""The migrations of the two parts, as Alembic scripts; :mod:`pillarbox.store.install` runs them.

``outbox/`` and ``inbox/`` are two independent histories with a version table each, since the inbox may live in another
database. A script's ``upgrade(op)`` takes its Operations as an argument: Alembic's own global ``op`` would make two
installs in two threads write through each other's connection. A script that has been released is never edited.
"""
