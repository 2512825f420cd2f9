"""Reports and queries of Determined's harness in a container that our own runtime does not make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from trainmaster.master.db.tables import Allocation, AllocationNode, Task
from trainmaster.master.services import bounds
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.values.stored import Json


@dataclass(frozen=True)
class HarnessRendezvous:
    addresses: list[str]
    rank: int
    slots: list[int]


class HarnessReports(BoundService):
    """What the published harness reports and asks outside of our runtime."""

    def note_accelerators(self, allocation_id: str, data: Mapping[str, Any]) -> None:
        """Store the devices of a container of an attempt; a new report replaces the container's earlier one. Raises
        NotFound, Invalid for more than an attempt may keep."""
        size = bounds.check_entry(self._settings.limits, data, "The report of a container's devices")
        with self._store.transaction() as session:
            row = _locked(session.get(Allocation, allocation_id, with_for_update=True), allocation_id)
            others = [known for known in row.accelerators or [] if known.get("containerId") != data.get("containerId")]
            bounds.check_entries(
                self._settings.limits, "The devices of an attempt", len(others), len(json.dumps(others)), size
            )
            row.accelerators = [*others, {**data, "allocationId": allocation_id, "taskId": row.task_id}]

    def accelerators(self, task_id: str) -> list[Json]:
        """Devices of all attempts of a task. Raises NotFound."""
        with self._store.transaction() as session:
            if session.get(Task, task_id) is None:
                raise NotFound(f"There is no task {task_id}.")
            query = select(Allocation.accelerators, Allocation.pool).where(Allocation.task_id == task_id)
            rows = session.execute(query.order_by(Allocation.attempt)).all()
        return [{**data, "resourcePool": pool} for known, pool in rows for data in known or []]

    def rendezvous(self, allocation_id: str, resources_id: str) -> HarnessRendezvous | None:
        """Addresses of all nodes of an attempt, once all have arrived; None before. `resources_id` is a node's name,
        its rank or its number among the containers."""
        with self._store.transaction() as session:
            row = _locked(session.get(Allocation, allocation_id), allocation_id)
            query = (
                select(AllocationNode)
                .where(AllocationNode.allocation_id == allocation_id)
                .order_by(AllocationNode.node_rank)
            )
            nodes = list(session.scalars(query))
        if row.leased_at is None or len(nodes) < row.num_nodes:
            return None
        own_node = next((node for node in nodes if resources_id in (node.name, str(node.node_rank))), nodes[0])
        return HarnessRendezvous(
            [next(iter(node.addresses), node.name) for node in nodes], own_node.node_rank, list(own_node.slot_ids)
        )


def _locked(row: Allocation | None, allocation_id: str) -> Allocation:
    if row is None:
        raise NotFound(f"There is no allocation {allocation_id}.")
    return row
