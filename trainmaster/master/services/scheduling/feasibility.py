"""Checks whether a pool can ever run what an experiment or task requests, before anything is created or moved."""

from __future__ import annotations

from trainmaster.config.node_data import STORE
from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.access.accounts import account_on
from trainmaster.master.services.clusters.clusters import ServedPool
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.scheduling.job_spec import JobSpecs, data_items
from trainmaster.master.values.configs import JobConfig, StoredConfig

EXCEEDED = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"
# Words that clients of Determined search for in a refusal.
_ONE_NODE = "request unfulfillable, please try requesting less slots"
_TOGETHER = "slots requested exceeds cluster capacity"


class Feasibility(BoundService):
    """What pools can run."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._job_specs = JobSpecs(master)

    def refuse_impossible(self, served: ServedPool, config: JobConfig, owner_id: int, workspace_id: int) -> None:
        """Raise Invalid with the reasons why a job of `config` can never run in the pool `served`. Being larger than
        the pool is a reason unless the site lets such jobs wait (`launch_error: false`); a job that must fit on one
        node never waits for that."""
        slots, total = config.slots, served.pool.slots_total
        one_node = bool(config.resources.is_single_node)
        too_many = slots > (served.pool.slots_per_node if one_node and served.pool.slots_per_node else total)
        waits = too_many and not one_node and not self._settings.launch_error
        sample = Allocation(
            id="0.check.1",
            task_id="0.check",
            token=f"{self._settings.token_prefix}check",
            slots=total if waits else slots,  # other reasons against it
            owner_id=owner_id,
            attempt=1,
        )
        with self._store.transaction() as session:
            sample.run_as = account_on(session, served.cluster, owner_id, workspace_id)
        complaints = [
            *served.cluster.dispatcher.check(self._job_specs.build(served, sample, config)),
            *_of_data(served, config),
        ]
        if complaints:
            known = f"{_ONE_NODE if one_node else _TOGETHER}: " if too_many else ""
            raise Invalid(known + " ".join(complaints))

    def launch_warnings(self, config: JobConfig) -> list[str]:
        """Warnings about a new experiment or task that clients show to the user, by Determined's names."""
        slots, pool = config.slots, config.resources.resource_pool
        exceeded = slots and slots > self._clusters.resolve(pool, slots).pool.slots_total
        return [EXCEEDED] if exceeded else []


def _of_data(served: ServedPool, config: JobConfig) -> list[str]:
    """Why the data of a job cannot be copied to its nodes."""
    items = data_items(config)
    complaints = []
    if items and not served.cluster.node_data:
        complaints.append(
            f"data: the nodes of {served.cluster.name} have no folder for copies: ask the administrator to set "
            "node_data for it, or leave `data` out and read from the shared file system."
        )
    storage = config.checkpoint_storage if isinstance(config, StoredConfig) else None
    stored = [item.source for item in items if item.source.startswith(STORE)]
    if stored and (storage is None or not storage.in_store):
        complaints.append(
            f"data: {stored[0]} lies in the experiment's object store, and its checkpoint_storage is none."
        )
    return complaints


def shortage(served: ServedPool, slots: int) -> str:
    """Why an attempt that is larger than its pool waits; empty for one that is not."""
    total = served.pool.slots_total
    if slots <= total:
        return ""
    return f"It asks for {slots} slots, and the pool {served.pool.name} has {total}: it waits until there are more."
