"""`get_cluster_info()`: what a process knows about its job, with the fields of Determined 0.38.1's ClusterInfo.

Read from the `DET_*` variables and the files under `info/` that the runtime wrote; None outside of a job.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from trainmaster.runtime.record import Record

_NEEDED = (
    "DET_MASTER",
    "DET_CLUSTER_ID",
    "DET_AGENT_ID",
    "DET_SLOT_IDS",
    "DET_TASK_ID",
    "DET_ALLOCATION_ID",
    "DET_SESSION_TOKEN",
    "DET_TASK_TYPE",
)


class RendezvousInfo(Record):
    """The nodes of the job, in the order of their ranks."""

    container_addrs: List[str]
    container_rank: int
    container_slot_counts: List[int]


class ResourcesInfo(Record):
    """The accelerators of this node."""

    gpu_uuids: List[str]


class TrialInfo(Record):
    """The trial that this job runs."""

    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: Dict[str, Any]
    _config: Dict[str, Any]
    steps_completed: int
    trial_run_id: int
    debug: bool = False
    inter_node_network_interface: Optional[str] = None


class RuntimeInfo(Record):
    """What core needs from the runtime of its node; not part of Determined's interface."""

    run_dir: Path
    spool: Path
    checkpoint_storage: Mapping[str, Any]
    torch_port: int
    distributed_port: int
    slot_type: str
    master_url_file: Optional[str] = None
    master_url_owner: Optional[int] = None
    launcher_port: int = 0  # for the launcher's own use, on the first node
    worker_ports: Sequence[Sequence[int]] = ()  # of each node, one for each slot
    limits: Mapping[str, int] = {}  # of the master, for one report


class ClusterInfo(Record):
    """The job of this process."""

    master_url: str
    cluster_id: str
    agent_id: str
    slot_ids: List[int]
    task_id: str
    allocation_id: str
    session_token: str
    task_type: str
    master_cert_name: Optional[str] = None
    master_cert_file: Optional[str] = None
    latest_checkpoint: Optional[str] = None
    trial_info: Optional[TrialInfo] = None
    rendezvous_info: Optional[RendezvousInfo] = None
    resources_info: Optional[ResourcesInfo] = None
    runtime_info: Optional[RuntimeInfo] = None
    user_data: Mapping[str, Any] = {}

    def __repr__(self) -> str:  # the session token is secret
        return "ClusterInfo(task_id=%r, allocation_id=%r)" % (self.task_id, self.allocation_id)

    @property
    def trial(self) -> TrialInfo:
        """The trial of this job.

        Raises:
            RuntimeError: The task is no trial.
        """
        if self.trial_info is None:
            raise RuntimeError("this is a %s task: it has no trial" % self.task_type)
        return self.trial_info

    @property
    def container_addrs(self) -> List[str]:
        """Addresses of all nodes, in the order of their ranks."""
        return self._rendezvous().container_addrs

    @property
    def container_rank(self) -> int:
        """This node's rank."""
        return self._rendezvous().container_rank

    @property
    def container_slot_counts(self) -> List[int]:
        """Number of slots of each node, in the order of their ranks."""
        return self._rendezvous().container_slot_counts

    @property
    def gpu_uuids(self) -> List[str]:
        """UUIDs of this node's GPUs; empty where the scheduler does not list them by UUID."""
        return [] if self.resources_info is None else self.resources_info.gpu_uuids

    def _rendezvous(self) -> RendezvousInfo:
        if self.rendezvous_info is None:
            raise RuntimeError("this %s task had no rendezvous" % self.task_type)
        return self.rendezvous_info


def get_cluster_info() -> Optional[ClusterInfo]:
    """Read what is known about this process's job.

    Returns:
        The job; None outside of one, where core's contexts work locally.
    """
    return read_cluster_info(os.environ)


def read_cluster_info(environ: Mapping[str, str]) -> Optional[ClusterInfo]:
    """`get_cluster_info` for a given environment."""
    if any(name not in environ for name in _NEEDED):
        return None
    run_dir = Path(environ.get("TRAINMASTER_RUN_DIR") or environ.get("DET_RUN_DIR") or "/run/determined")
    rendezvous = _read(run_dir, "rendezvous")
    resources = _read(run_dir, "resources")
    return ClusterInfo(
        master_url=environ["DET_MASTER"],
        cluster_id=environ["DET_CLUSTER_ID"],
        agent_id=environ["DET_AGENT_ID"],
        slot_ids=[int(slot) for slot in json.loads(environ["DET_SLOT_IDS"])],
        task_id=environ["DET_TASK_ID"],
        allocation_id=environ["DET_ALLOCATION_ID"],
        session_token=environ["DET_SESSION_TOKEN"],
        task_type=environ["DET_TASK_TYPE"],
        master_cert_name=environ.get("DET_MASTER_CERT_NAME") or None,
        master_cert_file=environ.get("DET_MASTER_CERT_FILE") or None,
        latest_checkpoint=environ.get("DET_LATEST_CHECKPOINT") or None,
        trial_info=_trial(_read(run_dir, "trial")),
        rendezvous_info=RendezvousInfo(**rendezvous) if rendezvous else None,
        resources_info=ResourcesInfo(list(resources.get("gpu_uuids", []))) if resources else None,
        runtime_info=_runtime(run_dir, _read(run_dir, "runtime")),
        user_data=_read(run_dir, "user_data") or {},
    )


def _read(run_dir: Path, name: str) -> Optional[Dict[str, Any]]:
    try:
        content = json.loads((run_dir / "info" / (name + ".json")).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return content if isinstance(content, dict) else None


def _trial(raw: Optional[Dict[str, Any]]) -> Optional[TrialInfo]:
    if raw is None:
        return None
    return TrialInfo(
        trial_id=raw["trial_id"],
        experiment_id=raw["experiment_id"],
        trial_seed=raw["trial_seed"],
        hparams=raw["hparams"],
        _config=raw["config"],
        steps_completed=raw["steps_completed"],
        trial_run_id=raw["trial_run_id"],
        debug=raw.get("debug", False),
        inter_node_network_interface=raw.get("inter_node_network_interface"),
    )


def _runtime(run_dir: Path, raw: Optional[Dict[str, Any]]) -> Optional[RuntimeInfo]:
    if raw is None:
        return None
    return RuntimeInfo(
        run_dir=run_dir,
        spool=Path(raw["spool"]),
        checkpoint_storage=raw["checkpoint_storage"],
        torch_port=raw["torch_port"],
        distributed_port=raw["distributed_port"],
        slot_type=raw["slot_type"],
        master_url_file=raw.get("master_url_file"),
        master_url_owner=raw.get("master_url_owner"),
        launcher_port=raw.get("launcher_port", 0),
        worker_ports=raw.get("worker_ports", []),
        limits=raw.get("limits") or {},
    )
