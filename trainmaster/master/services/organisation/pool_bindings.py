"""Bindings of resource pools to workspaces. A pool without a binding serves every workspace."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from trainmaster.master.db.organisation import PoolBinding
from trainmaster.master.db.tables import Workspace
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.organisation import workspaces
from trainmaster.master.services.paging import Page, cut


class PoolBindings(BoundService):
    """Bindings of pools to workspaces."""

    def of_pool(self, pool: str, offset: int, limit: int) -> Page[int]:
        """Return the workspaces that a pool is bound to."""
        self._known(pool)
        with self._store.transaction() as session:
            query = select(PoolBinding.workspace_id).where(PoolBinding.pool == pool).order_by(PoolBinding.workspace_id)
            workspace_ids = list(session.scalars(query))
        window = cut(offset, limit, len(workspace_ids))
        return Page(workspace_ids[window.start : window.end], window)

    def of_workspace(self, workspace_id: int, offset: int, limit: int) -> Page[str]:
        """Return the pools that the experiments of a workspace may use."""
        with self._store.transaction() as session:
            if session.get(Workspace, workspace_id) is None:
                raise NotFound(f"There is no workspace {workspace_id}.")
            names = [served.pool.name for served in self._clusters.pools()]
            open_pools = [name for name in names if _open(session, name, workspace_id)]
        window = cut(offset, limit, len(open_pools))
        return Page(open_pools[window.start : window.end], window)

    def bound(self) -> frozenset[str]:
        """Return the pools that are bound to any workspace."""
        with self._store.transaction() as session:
            return frozenset(session.scalars(select(PoolBinding.pool)))

    def bind(self, caller: Caller, pool: str, ids: Sequence[int], names: Sequence[str]) -> None:
        """Bind a pool to workspaces. Raises NotFound, Invalid for a default pool, Forbidden, and Conflict for a
        workspace that is bound already."""
        self._bindable(caller, pool)
        with self._store.transaction() as session:
            for workspace in _workspaces(session, ids, names):
                if session.get(PoolBinding, (pool, workspace.id)) is not None:
                    raise Conflict(f"The pool {pool} is bound to the workspace {workspace.name!r} already.")
                session.add(PoolBinding(pool=pool, workspace_id=workspace.id))

    def unbind(self, pool: str, ids: Sequence[int], names: Sequence[str]) -> None:
        self._known(pool)
        with self._store.transaction() as session:
            for workspace in _workspaces(session, ids, names):
                binding = session.get(PoolBinding, (pool, workspace.id))
                if binding is None:
                    raise NotFound(f"The pool {pool} is not bound to the workspace {workspace.name!r}.")
                session.delete(binding)

    def replace(self, caller: Caller, pool: str, ids: Sequence[int], names: Sequence[str]) -> None:
        self._bindable(caller, pool)
        with self._store.transaction() as session:
            wanted = _workspaces(session, ids, names)
            session.execute(delete(PoolBinding).where(PoolBinding.pool == pool))
            session.add_all(PoolBinding(pool=pool, workspace_id=workspace.id) for workspace in wanted)

    def _known(self, pool: str) -> None:
        if pool not in {served.pool.name for served in self._clusters.pools()}:
            raise NotFound(f"There is no resource pool {pool!r}.")

    def _bindable(self, caller: Caller, pool: str) -> None:
        self._known(pool)
        if pool in {self._clusters.resolve("", slots).pool.name for slots in (0, 1)}:
            raise Invalid(f"default resource pool {pool} cannot be bound to any workspace: it serves everybody.")
        caller.require(Permission.MODIFY_RP_WORKSPACE_BINDINGS)


def refuse_closed(session: Session, pool: str, workspace_id: int) -> None:
    """Raise Invalid when the pool is bound to other workspaces only."""
    if not _open(session, pool, workspace_id):
        raise Invalid(f"The resource pool {pool} is kept for other workspaces; `det workspace list-pools` shows yours.")


def _open(session: Session, pool: str, workspace_id: int) -> bool:
    bound = set(session.scalars(select(PoolBinding.workspace_id).where(PoolBinding.pool == pool)))
    return not bound or workspace_id in bound


def _workspaces(session: Session, ids: Sequence[int], names: Sequence[str]) -> list[Workspace]:
    by_id = {key: workspaces.locked(session, key) for key in ids}
    for name in names:
        row = workspaces.by_name(session, name)
        by_id[row.id] = row
    return list(by_id.values())
