"""Opens the object store of a job's experiment."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from trainmaster.core.errors import UnusableStorage
from trainmaster.core.info import ClusterInfo
from trainmaster.core.storage import Storage, open_storage
from trainmaster.runtime.master import MasterCalls


def store_of(info: ClusterInfo, master: Optional[MasterCalls] = None) -> Callable[[Mapping[str, Any]], Storage]:
    """Return what opens an object store in this job. `master`: connections to use; by default others are made."""

    def store(config: Mapping[str, Any]) -> Storage:
        from trainmaster.core.object_storage import ObjectStorage  # most jobs have a folder

        runtime = info.runtime_info
        assert runtime is not None, "jobs without our runtime have no storage of ours"
        if dict(config) != dict(runtime.checkpoint_storage):
            raise UnusableStorage(
                "checkpoint_storage: the master signs for the experiment's own object store; name this one in the "
                "experiment's configuration"
            )
        calls = master or MasterCalls(
            info.master_url, info.session_token, url_file=runtime.master_url_file, url_owner=runtime.master_url_owner
        )
        return ObjectStorage(config, calls, info.allocation_id, runtime.run_dir / "checkpoints")

    return store


def storage_of_job(info: ClusterInfo) -> Storage:
    """Return the storage of this job's experiment. Raises UnusableStorage."""
    assert info.runtime_info is not None, "jobs without our runtime have no storage of ours"
    return open_storage(info.runtime_info.checkpoint_storage or None, store_of(info))
