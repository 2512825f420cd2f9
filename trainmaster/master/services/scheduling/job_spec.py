"""Builds the job of a trial's allocation: the specification for the dispatcher, and the work order that the job gets
with its lease."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from trainmaster.config.environment import Environment
from trainmaster.config.node_data import STORE, DataItem
from trainmaster.config.secrets import for_job
from trainmaster.config.storage import without_credentials
from trainmaster.dispatchers.base import (
    BindMount,
    ContainerSpec,
    DeviceMount,
    JobFeature,
    JobSpec,
    SharedFile,
    StagedFile,
    Traits,
)
from trainmaster.dispatchers.contract.agents import REGISTRY_LOGIN
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.services.access.identity import Identities
from trainmaster.master.services.clusters.clusters import ServedPool
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.values.configs import JobConfig, StoredConfig
from trainmaster.runtime.job import MASTER_CERTIFICATE, RUNTIME, SHARED_CONTEXT

SHARED_FS = "/determined_shared_fs"
HOST_KEY = "host_key"  # among a shell's secrets
WORK_DIR = "/run/determined/workdir"  # in a container: the folder of the user's files, and of relative mounts
# sshd as root drops root's rights in part: it changes to another account and into an empty root (sshd(8)), and gives
# the terminal away. It ends a session with a terminal that it may not record in the audit log of the kernel.
SSHD = ("AUDIT_WRITE", "SETUID", "SETGID", "SYS_CHROOT", "CHOWN")
_TRIAL_CLASS = re.compile(r"[a-zA-Z0-9_.]+:[a-zA-Z0-9_]+")


class JobSpecs(BoundService):
    """Job specifications of trials."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._identities = Identities(master)

    def build(
        self,
        served: ServedPool,
        allocation: Allocation,
        config: JobConfig,
        secrets: Mapping[str, str] = MappingProxyType({}),
        context: SharedFile | None = None,
    ) -> JobSpec:
        """Return the job of one allocation; `secrets` are files of its folder, by name, `context` the archive of the
        user's files where it comes with the folder. The same inputs give the same job, byte for byte."""
        dispatcher = served.cluster.dispatcher
        traits = dispatcher.traits
        section = traits.user_section or dispatcher.kind
        resources, environment = config.resources, config.environment
        site = served.cluster.settings_of(served.pool.name, served.partition)
        announcement = served.cluster.announcement
        job = {
            "version": 1,
            "allocation_id": allocation.id,
            "task_id": allocation.task_id,
            "token": allocation.token,
            "cluster_id": self._settings.cluster_id,
            "master_url": served.cluster.master_url or self._settings.master_url,
            "master_url_file": str(served.cluster.master_url_file) if announcement.made else None,
            "master_url_owner": announcement.owner,
            "scheduler": dispatcher.kind,
            "resources_type": traits.resources_type,
            "pool": served.pool.name,
            "slots": allocation.slots,
            "slot_type": served.pool.slot_type.value,
            "walltime_grace": served.cluster.facts.walltime_grace,
            "orphaned_after": served.cluster.facts.orphaned_after,
            "heartbeat": self._settings.heartbeat,
            "lease_patience": self._settings.lease_patience,
            "environment": dict(site.environment),
        }
        if items := data_items(config):
            job |= {"node_data": served.cluster.node_data, "node_data_limit": served.cluster.node_data_limit}
        secret = self._identities.session_token(allocation.id, allocation.token)
        return JobSpec(
            token=allocation.token,
            allocation_id=allocation.id,
            pool=served.partition,
            slots=allocation.slots,
            slot_type=served.pool.slot_type,
            slots_per_node=config.slots_per_node(section),
            single_node=bool(resources.is_single_node),
            container=ContainerSpec(
                runtime=served.cluster.container_runtime,
                image=image_for(config, devices_of(allocation.slots, served.pool.slot_type.value)),
                binds=(*_binds(config), *_data_binds(items, served.cluster.node_data)),
                shm_size=resources.shm_size or site.shm_size,
                network_mode=site.network_mode,
                force_pull=environment.force_pull_image,
                devices=tuple(
                    DeviceMount(device.host_path, device.container_path, device.mode or "rwm")
                    for device in resources.devices
                ),
                add_capabilities=tuple(environment.add_capabilities),
                drop_capabilities=tuple(environment.drop_capabilities),
                root_capabilities=SSHD if HOST_KEY in secrets else (),
            ),
            files={
                "job.json": StagedFile(json.dumps(job, indent=1).encode()),
                "secrets/token": StagedFile(secret.encode()),
                RUNTIME: SharedFile(_sha256(self._settings.runtime_zip), lambda: self._settings.runtime_zip),
                **({SHARED_CONTEXT: context} if context is not None else {}),
                **(
                    {MASTER_CERTIFICATE: StagedFile(anchors.encode())}
                    if (anchors := self._settings.master_anchors())
                    else {}
                ),
                **{f"hooks/{i:02}.sh": StagedFile(hook.encode()) for i, hook in enumerate(site.startup_hooks)},
                **_login_file(traits, environment),
                **{f"secrets/{name}": StagedFile(text.encode()) for name, text in secrets.items()},
            },
            labels=labels(served.cluster.facts.project_source, config),
            options=config.options_of(section),
            walltime_grace=served.cluster.facts.walltime_grace,
            trains=isinstance(config, StoredConfig),
            user=allocation.run_as,
            priority=resources.priority or served.pool.default_priority,
            weight=config.weight,
            max_slots=resources.max_slots,
            group=allocation.task_id.partition(".")[0],
        )


@lru_cache(maxsize=2)
def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _login_file(traits: Traits, environment: Environment) -> dict[str, StagedFile]:
    login = environment.registry_auth
    given = {key: value for key, value in login.model_dump().items() if value} if login is not None else {}
    if not given or JobFeature.REGISTRY_LOGIN not in traits.supports:
        return {}
    return {REGISTRY_LOGIN: StagedFile(json.dumps(given).encode())}


def labels(source: str, config: JobConfig) -> tuple[str, ...]:
    """Labels for the scheduler's accounting, from the sources in `job_project_source`."""
    if source in ("project", "workspace"):
        name = config.project if source == "project" else config.workspace
        return (name,) if name else ()
    if source.partition(":")[0] == "label":
        prefix = source.partition(":")[2]
        return tuple(sorted(name.removeprefix(prefix) for name in config.labels if name.startswith(prefix)))
    return ()


def image_for(config: JobConfig, slot_type: str) -> str:
    return str(getattr(config.environment.image, slot_type, config.environment.image.cpu))


def environment_for(config: JobConfig, slot_type: str) -> dict[str, str]:
    """Return the user's variables; `NAME` alone and `NAME=` are empty, and a value may hold further `=` signs."""
    entries: list[str] = getattr(config.environment.environment_variables, slot_type, [])
    return dict(entry.partition("=")[::2] for entry in entries)


def launched(entrypoint: str | list[str]) -> str | list[str]:
    """Return the command of an experiment. `model_def:TrialClass` is not a command: Determined launches such a class by
    its harness."""
    if isinstance(entrypoint, str) and _TRIAL_CLASS.fullmatch(entrypoint):
        return ["python3", "-m", "determined.launch.torch_distributed", "--", "--trial", entrypoint]
    return in_shell(entrypoint)


def in_shell(entrypoint: str | list[str]) -> str | list[str]:
    """Return a list of one word is a script for the shell: `det command run "sleep 5; echo hi"` sends such a list."""
    return entrypoint[0] if isinstance(entrypoint, list) and len(entrypoint) == 1 else entrypoint


def work_for(
    experiment: Experiment, trial: Trial, allocation: Allocation, slot_type: str, owner: str
) -> dict[str, Any]:
    """Return the work order that the runtime gets with the lease (see docs/architecture/in-job-protocol.md)."""
    config = experiment.config
    latest = trial.latest_checkpoint or trial.warm_start
    return {
        "task_type": "TRIAL",
        "trial": {
            "id": trial.id,
            "experiment_id": experiment.id,
            "request_id": trial.request_id,
            "seed": trial.seed,
            "hparams": in_order(trial.hparams),
            "run_id": allocation.attempt,
            "steps_completed": 0,
            "latest_checkpoint": str(latest) if latest else None,
        },
        "config": in_order(for_job(config.to_json())),
        "entrypoint": launched(config.entrypoint),
        "environment": environment_for(config, devices_of(allocation.slots, slot_type)),
        "checkpoint_storage": without_credentials(storage.to_json())
        if (storage := config.checkpoint_storage)
        else None,
        "num_nodes": allocation.num_nodes,
        "owner": owner,
        "context_size": experiment.context_size,
        "preempt": {"reason": allocation.preempt_reason} if allocation.preempt_at else None,
    }


def in_order(value: Any) -> Any:
    """Sort the keys of all mappings alphabetically: what a job reads does not depend on how the database keeps
    them (jsonb: the shorter key first)."""
    if isinstance(value, Mapping):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(each) for each in value] if isinstance(value, (list, tuple)) else value


def devices_of(slots: int, slot_type: str) -> str:
    """Return the kind of devices by which a job's image and variables are chosen; `slot_type` is the pool's. A job
    without slots has none of its accelerators."""
    return slot_type if slots else "cpu"


def data_items(config: JobConfig) -> list[DataItem]:
    """Return what is to be copied to the job's nodes."""
    return list(config.data_items) if isinstance(config, StoredConfig) else []


def _data_binds(items: Sequence[DataItem], folder: str) -> list[BindMount]:
    """Under the same paths inside and outside: what is copied, and where the copies are."""
    sources = dict.fromkeys(item.source for item in items if not item.source.startswith(STORE))
    copies = [BindMount(folder, folder)] if items and folder else []
    return [*(BindMount(source, source, True) for source in sources), *copies]


def _binds(config: JobConfig) -> list[BindMount]:
    """Return the mounts. A relative target is below the folder in which the job starts."""
    named = config.work_dir or ""
    work_dir = named if named.startswith("/") and "$" not in named else WORK_DIR
    binds = [
        BindMount(
            mount.host_path,
            posixpath.join(work_dir, mount.container_path),
            mount.read_only,
        )
        for mount in config.bind_mounts
    ]
    storage = config.checkpoint_storage
    if storage is not None and storage.type == "shared_fs":
        # Under the same path inside and outside, so that a checkpoint's path means the same to everyone; and where
        # Determined's containers have it.
        binds.append(BindMount(storage.host_path, storage.host_path))
        if all(bind.container_path.rstrip("/") != SHARED_FS for bind in binds):
            binds.append(BindMount(storage.host_path, SHARED_FS))
    return binds
