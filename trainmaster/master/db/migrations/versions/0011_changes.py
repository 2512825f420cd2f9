"""Numbers for changes of projects, models and model versions, for those who follow them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# What is told of each: a change of these columns is news.
WATCHED = {
    "projects": "name, description, workspace_id, archived, immutable, user_id, key, notes, state",
    "models": "name, description, notes, labels, metadata, archived, user_id, workspace_id, updated_at",
    "model_versions": ("model_id, version, checkpoint, name, comment, notes, labels, metadata, user_id, updated_at"),
}

FUNCTIONS = (
    """
    CREATE FUNCTION without_number() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.seq := NULL;
        RETURN NEW;
    END $$
    """,
    """
    CREATE FUNCTION tell_of_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('trainmaster', 'stream');
        RETURN NULL;
    END $$
    """,
    # A version stands where its model stands.
    """
    CREATE FUNCTION versions_move_along() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE model_versions SET seq = NULL WHERE model_id = NEW.id;
        RETURN NULL;
    END $$
    """,
)


def upgrade() -> None:
    op.execute("CREATE SEQUENCE change_numbers")
    for statement in FUNCTIONS:
        op.execute(statement)
    for table, columns in WATCHED.items():
        op.add_column(table, sa.Column("seq", sa.BigInteger(), nullable=True))
        op.execute(f"UPDATE {table} SET seq = nextval('change_numbers')")  # noqa: S608
        op.create_index(f"ix_{table}_unnumbered", table, ["id"], postgresql_where=sa.text("seq IS NULL"))
        op.execute(
            f"CREATE TRIGGER without_number BEFORE UPDATE OF {columns} ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION without_number()"
        )
        op.execute(
            f"CREATE TRIGGER tell_of_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION tell_of_change()"
        )
    op.execute(
        "CREATE TRIGGER versions_move_along AFTER UPDATE OF workspace_id ON models "
        "FOR EACH ROW EXECUTE FUNCTION versions_move_along()"
    )
