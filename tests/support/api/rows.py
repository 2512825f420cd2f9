"""Digests of the tables that only API calls write, to check that a refused call has changed nothing."""

from __future__ import annotations

from sqlalchemy import Engine, text

# The controller, the jobs of other tests and sessions write the other tables at any time; in the second kind they
# change rows and delete experiments, but make none.
_QUIET = (
    *("cluster_message", "config_policies", "group_members", "groups", "model_versions", "models", "pool_bindings"),
    *("projects", "role_assignments", "templates", "trial_sources", "user_settings", "webhook_triggers", "webhooks"),
    *("workspace_pins", "workspaces"),
)
_COUNTED = ("checkpoints", "experiments", "jobs", "model_definitions", "tasks", "trials", "users")


def written(engine: Engine) -> dict[str, str]:
    """A digest of each table's rows, or how many there are."""
    digest = "coalesce(md5(string_agg(t::text, '' order by t::text)), '')"
    queries = [f"select '{name}', {digest} from \"{name}\" t" for name in _QUIET]
    queries += [f"select '{name}', count(*)::text from \"{name}\"" for name in _COUNTED]
    with engine.connect() as connection:
        return {name: found for name, found in connection.execute(text(" union all ".join(queries)))}


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The tables that a call must have written between the two."""
    quiet = [name for name in _QUIET if after[name] != before[name]]
    return quiet + [name for name in _COUNTED if int(after[name]) > int(before[name])]
