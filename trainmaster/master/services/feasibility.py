"""Whether a pool can ever run what an experiment or a task asks for: told before anything is created or moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.master.db.tables import Allocation
from trainmaster.master.services import jobspec
from trainmaster.master.services.accounts import account_on
from trainmaster.master.services.clusters import ServedPool
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.store import Settings, Store


def refuse_impossible(
    store: Store, settings: Settings, served: ServedPool, config: Mapping[str, Any], owner_id: int, workspace_id: int
) -> None:
    """Raises Invalid with what speaks against a job of `config` in the pool `served`."""
    resources = config["resources"]
    sample = Allocation(
        id="0.check.1",
        task_id="0.check",
        token=f"{settings.token_prefix}check",
        slots=int(resources["slots_per_trial"] if "slots_per_trial" in resources else resources["slots"]),
        owner_id=owner_id,
        attempt=1,
    )
    with store.transaction() as session:
        sample.run_as = account_on(session, served.cluster, owner_id, workspace_id)
    complaints = served.cluster.dispatcher.check(jobspec.build(settings, served, sample, config))
    if complaints:
        raise Invalid(" ".join(complaints))
