"""Alembic's entry: migrations run on the connection that `migrate.upgrade` opened."""

from alembic import context

from trainmaster.master.db import (  # noqa: F401 - their tables are to be known
    compacted,
    experiment_code,
    model_registry,
    organisation,
    searches,
    standalone,
    upkeep,
    webhooks,
)
from trainmaster.master.db.tables import Base

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Base.metadata, transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
