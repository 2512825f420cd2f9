"""Fills an empty database: the identity of the master, the first users, the Uncategorized workspace and project."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import MasterRecord, Project, User, Workspace
from trainmaster.master.services.access.identity import ensure_first_users, random_secret
from trainmaster.master.services.store import Store


@dataclass(frozen=True)
class MasterIdentity:
    """The identity of this master. `fresh`: the database was empty."""

    cluster_id: str
    secret: bytes
    fresh: bool


def prepare(store: Store, passwords: Mapping[str, str]) -> MasterIdentity:
    """Create the cluster's identity, the first users and the Uncategorized project, unless they exist. `passwords`:
    of the first users, by their names."""
    with store.transaction() as session:
        cluster = session.get(MasterRecord, 1, with_for_update=True)
        if cluster is None:
            cluster = MasterRecord(id=1, cluster_id=uuid.uuid4(), secret=random_secret())
            session.add(cluster)
            session.flush()
        fresh = ensure_first_users(session, passwords)
        if fresh:
            _first_project(session)
        return MasterIdentity(str(cluster.cluster_id), cluster.secret, fresh)


def _first_project(session: Session) -> None:
    owner = session.scalars(select(User.id).order_by(User.id)).first()
    assert owner is not None
    workspace = Workspace(name="Uncategorized", immutable=True, user_id=owner, archived=False)
    session.add(workspace)
    session.flush()
    name = "Uncategorized"
    session.add(Project(name=name, key="UNC", description="", immutable=True, workspace_id=workspace.id, user_id=owner))
