"""Runs migrations on the connection that `database.migrate` gives; Alembic loads this file by its path."""

from __future__ import annotations

from alembic import context

if (connection := context.config.attributes.get("connection")) is not None:
    context.configure(connection=connection, transactional_ddl=True)
    context.run_migrations()
