"""Names for versions of models, such as "production": each leads to one version, and is moved to the next one."""

from __future__ import annotations

import re

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.master.db.model_registry import Model, ModelAlias, ModelVersion
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.model_registry import registered_models

MOST = 50  # of a model
LATEST = "latest"  # the newest version: nobody moves it
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,49}")


class ModelAliases(BoundService):
    """The aliases of models' versions."""

    def of_model(self, key: str) -> dict[str, int]:
        """Return alias -> number of the version, in alphabetical order. Raises NotFound."""
        with self._store.transaction() as session:
            return _aliases(session, registered_models.find(session, key))

    def put(self, caller: Caller, key: str, alias: str, number: int) -> dict[str, int]:
        """Let an alias lead to a version, wherever it led before. Colleagues' jobs load what it leads to, so this is
        for those who may register versions.

        Raises NotFound, Invalid, Conflict, Forbidden."""
        if not _NAME.fullmatch(alias) or alias.lower() == LATEST:
            raise Invalid(
                f"{alias[:60]!r} cannot be an alias: up to 50 letters, digits, dots, dashes and underscores, with a "
                f"letter first, and not {LATEST!r}, which is always the newest version."
            )
        with self._store.transaction() as session:
            model = registered_models.registering(session, caller, key, self._clusters.run_as_users)
            version = registered_models.find_version(session, model, number)
            known = select(func.count()).where(ModelAlias.model_id == model.id, ModelAlias.alias != alias)
            if (session.scalar(known) or 0) >= MOST:
                raise Conflict(f"The model {model.name!r} has {MOST} aliases; remove one first.")
            row = insert(ModelAlias).values(model_id=model.id, alias=alias, version_id=version.id)
            session.execute(row.on_conflict_do_update(index_elements=["model_id", "alias"], set_=dict(row.excluded)))
            return _aliases(session, model)

    def remove(self, caller: Caller, key: str, alias: str) -> dict[str, int]:
        """Remove an alias; its version stays. Raises NotFound, Conflict, Forbidden."""
        with self._store.transaction() as session:
            model = registered_models.registering(session, caller, key, self._clusters.run_as_users)
            named = delete(ModelAlias).where(ModelAlias.model_id == model.id, ModelAlias.alias == alias)
            if session.scalar(named.returning(ModelAlias.alias)) is None:
                raise NotFound(f"The model {model.name!r} has no alias {alias[:60]!r}.")
            return _aliases(session, model)


def _aliases(session: Session, model: Model) -> dict[str, int]:
    query = select(ModelAlias.alias, ModelVersion.version).join(ModelVersion, ModelVersion.id == ModelAlias.version_id)
    rows = session.execute(query.where(ModelAlias.model_id == model.id).order_by(ModelAlias.alias))
    return {alias: number for alias, number in rows}
