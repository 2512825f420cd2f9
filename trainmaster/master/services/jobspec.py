"""From an allocation to a job: what the dispatcher gets, and what the job is told when it has leased."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainmaster.dispatchers.base import BindMount, ContainerSpec, JobSpec, StagedFile
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.services.clusters import ServedPool
from trainmaster.master.services.identity import session_token
from trainmaster.master.services.store import Settings

RESOURCES_TYPE = {"slurm": "slurm-job", "pbs": "slurm-job", "docker": "docker-container"}


def build(settings: Settings, served: ServedPool, allocation: Allocation, config: Mapping[str, Any]) -> JobSpec:
    """The job of one allocation. The same inputs give the same job, byte for byte."""
    kind = served.cluster.kind
    section = config.get("pbs" if kind == "pbs" else "slurm") or {}
    resources = config["resources"]
    job = {
        "version": 1,
        "allocation_id": allocation.id,
        "task_id": allocation.task_id,
        "token": allocation.token,
        "cluster_id": settings.cluster_id,
        "master_url": served.cluster.master_url or settings.master_url,
        "master_url_file": str(served.cluster.master_url_file) if served.cluster.here else None,
        "scheduler": kind,
        "resources_type": RESOURCES_TYPE.get(kind, "slurm-job"),
        "pool": served.pool.name,
        "slots": allocation.slots,
        "slot_type": served.pool.slot_type.value,
        "walltime_grace": served.cluster.walltime_grace,
        "heartbeat": settings.heartbeat,
        "lease_patience": settings.lease_patience,
        "environment": {},
    }
    secret = session_token(settings, allocation.id, allocation.token)
    return JobSpec(
        token=allocation.token,
        allocation_id=allocation.id,
        pool=served.partition,
        slots=allocation.slots,
        slot_type=served.pool.slot_type,
        slots_per_node=section.get("slots_per_node"),
        gpu_type=section.get("gpu_type"),
        single_node=bool(resources.get("is_single_node")),
        container=ContainerSpec(
            runtime=served.cluster.container_runtime,
            image=image_for(config, served.pool.slot_type.value),
            binds=tuple(_binds(config)),
        ),
        files={
            "job.json": StagedFile(json.dumps(job, indent=1).encode()),
            shm_size=resources.get("shm_size"),
            force_pull=bool((config.get("environment") or {}).get("force_pull_image")),
            "secrets/token": StagedFile(secret.encode()),
            "runtime.zip": StagedFile(settings.runtime_zip),
        },
        options=tuple(section.get("pbsbatch_args" if kind == "pbs" else "sbatch_args") or ()),
        walltime_grace=served.cluster.walltime_grace,
        user=allocation.run_as,
    )


def image_for(config: Mapping[str, Any], slot_type: str) -> str:
    image = (config.get("environment") or {}).get("image") or ""
    return str(image.get(slot_type) or image.get("cpu") or "") if isinstance(image, Mapping) else str(image)


def environment_for(config: Mapping[str, Any], slot_type: str) -> dict[str, str]:
    """The user's variables; `NAME` alone and `NAME=` are empty, and a value may hold further `=` signs."""
    found = (config.get("environment") or {}).get("environment_variables") or []
    entries = found.get(slot_type) or [] if isinstance(found, Mapping) else found
    return dict(entry.partition("=")[::2] for entry in entries)


def work_for(
    experiment: Experiment, trial: Trial, allocation: Allocation, slot_type: str, owner: str
) -> dict[str, Any]:
    """What the runtime is told once it holds the lease (see ARCHITECTURE.md)."""
    config = experiment.config
    latest = str(trial.latest_checkpoint) if trial.latest_checkpoint else None
    return {
        "task_type": "TRIAL",
        "trial": {
            "id": trial.id,
            "experiment_id": experiment.id,
            "request_id": trial.request_id,
            "seed": trial.seed,
            "hparams": trial.hparams,
            "run_id": allocation.attempt,
            "steps_completed": 0,
            "latest_checkpoint": latest,
        },
        "config": config,
        "entrypoint": config["entrypoint"],
        "environment": environment_for(config, slot_type),
        "checkpoint_storage": config["checkpoint_storage"],
        "num_nodes": allocation.num_nodes,
        "owner": owner,
        "preempt": {"reason": allocation.preempt_reason} if allocation.preempt_at else None,
    }


def _binds(config: Mapping[str, Any]) -> list[BindMount]:
    binds = [
        BindMount(mount["host_path"], mount["container_path"], bool(mount.get("read_only")))
        for mount in config.get("bind_mounts") or ()
    ]
    storage = config["checkpoint_storage"]
    if storage["type"] == "shared_fs":
        # Under the same path inside and outside, so that a checkpoint's path means the same to everyone.
        binds.append(BindMount(storage["host_path"], storage["host_path"]))
    return binds
