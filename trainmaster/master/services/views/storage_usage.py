"""Bytes of checkpoints by experiment, owner or workspace, and the room that is left for more."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, select

from trainmaster.master.db.tables import Experiment, Project, User, Workspace
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.files.object_stores import where
from trainmaster.master.services.files.user_files import DEFAULT_STORAGE
from trainmaster.master.values.storage import StorageRef

Grouping = Literal["experiment", "owner", "workspace"]


@dataclass(frozen=True)
class StorageShare:
    """What one of them keeps. `id`: the experiment's, the user's or the workspace's number."""

    id: int
    name: str
    owner: str  # of an experiment
    workspace: str  # of an experiment
    checkpoints: int
    size: int  # bytes


@dataclass(frozen=True)
class SiteStorage:
    """The site's own storage. `free`, `total`: bytes; None where nobody says it."""

    place: str
    free: int | None
    total: int | None


class StorageUsage(BoundService):
    """Usage of checkpoint storage."""

    def shares(self, by: Grouping, workspaces: frozenset[int] | None, limit: int) -> list[StorageShare]:
        """Return the largest shares first; in these workspaces, or in all. What has no checkpoints is left out."""
        size, count = func.sum(Experiment.checkpoint_size), func.sum(Experiment.checkpoint_count)
        thing: dict[Grouping, tuple[Any, ...]] = {
            "experiment": (Experiment.id, Experiment.name, User.username, Workspace.name),
            "owner": (User.id, User.username),
            "workspace": (Workspace.id, Workspace.name),
        }
        columns = thing[by]
        query = (
            select(*columns, count, size)
            .select_from(Experiment)
            .join(User, User.id == Experiment.owner_id)
            .join(Project, Project.id == Experiment.project_id)
            .join(Workspace, Workspace.id == Project.workspace_id)
            .where(Experiment.checkpoint_count > 0)
            .group_by(*columns)
            .order_by(size.desc(), columns[0])
            .limit(limit)
        )
        if workspaces is not None:
            query = query.where(Project.workspace_id.in_(workspaces))
        with self._store.autocommit() as session:
            rows = session.execute(query).all()
        return [
            StorageShare(
                id=row[0],
                name=row[1],
                owner=row[2] if by == "experiment" else "",
                workspace=row[3] if by == "experiment" else "",
                checkpoints=int(row[-2]),
                size=int(row[-1]),
            )
            for row in rows
        ]

    def site(self) -> SiteStorage:
        """Return the site's storage, and the room in its file system; an object store does not say its own."""
        storage = StorageRef(dict(self._settings.checkpoint_storage))
        if storage.in_store:
            return SiteStorage(where(storage), None, None)
        data = self._settings.data
        root = storage.root or (str(data / DEFAULT_STORAGE) if data is not None else "")
        try:
            room = shutil.disk_usage(root)
        except OSError:  # it is mounted on nodes only
            return SiteStorage(root, None, None)
        return SiteStorage(root, room.free, room.total)
