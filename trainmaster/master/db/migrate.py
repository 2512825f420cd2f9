"""Bringing a database to the schema of this version."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

_LOCK = 7301_0001  # advisory lock: two masters must not migrate at once


class SchemaTooNew(RuntimeError):
    """The database was written by a newer trainmaster."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def current(engine: Engine) -> str | None:
    """The revision the database is at; None for an empty one."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine) -> None:
    """Run every migration the database has not seen, in one transaction. Raises SchemaTooNew."""
    config = _config()
    script = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        found = MigrationContext.configure(connection).get_current_revision()
        if found and found not in {revision.revision for revision in script.walk_revisions()}:
            raise SchemaTooNew(
                f"The database is at revision {found}, which this version of trainmaster does not know: it was written "
                "by a newer one. Start that version, or restore a backup taken before the upgrade."
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
