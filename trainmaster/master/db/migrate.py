"""Upgrades a database to the schema of this version."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from trainmaster.master.db.request_context import without_deadline

_LOCK = 7301_0001  # advisory lock: two masters must not migrate at once


class SchemaTooNew(RuntimeError):
    """The database was written by a newer trainmaster."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def current(engine: Engine) -> str | None:
    """Return the revision the database is at; None for an empty one."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def revisions() -> list[str]:
    """All revisions that this version knows, the oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def upgrade(engine: Engine, to: str = "head") -> None:
    """Run every migration the database has not seen, in one transaction. Raises SchemaTooNew."""
    config = _config()
    with without_deadline(), engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        revision = MigrationContext.configure(connection).get_current_revision()
        if revision and revision not in revisions():
            raise SchemaTooNew(
                f"The database is at revision {revision}, which this version of trainmaster does not know: it was "
                "written by a newer one. Start that version, or restore a backup taken before the upgrade."
            )
        config.attributes["connection"] = connection
        command.upgrade(config, to)
