"""Environment of the user's process: `DET_*` variables, `info/*.json`, the path to core.

The variables are those of Determined 0.38.1, so that its harness works unchanged in the job.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional

from trainmaster.runtime.facts import Facts
from trainmaster.runtime.job import JobDescription, Work, with_certificate
from trainmaster.runtime.rendezvous import Rendezvous
from trainmaster.runtime.url import split_url

_LONGEST = 120_000  # bytes; Linux refuses a single variable above 128 KiB (execve(2), MAX_ARG_STRLEN)

_KEYS = ("access_key", "secret_key", "connection_string", "credential")


def child_environment(
    job: JobDescription,
    work: Work,
    facts: Facts,
    rendezvous: Rendezvous,
    *,
    run_dir: str,
    package: str,
    master_url: str,
    session_token: str,
    interface: Optional[str],
    inherited: Mapping[str, str],
) -> Dict[str, str]:
    """Compose the variables of the user's process: what was inherited, the job's and the work's own, then what is
    known here."""
    # Our own facts end here: a job that is submitted from inside this one must not take them for its own.
    # Nor is it to act as the user who started the master by hand.
    outside = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("TRAINMASTER_") and name not in ("DET_USER_TOKEN", "DET_PASS")
    }
    outside = with_certificate(job.folder, outside)
    environment = {**outside, **job.environment, **work.environment}
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if interface is not None and len(rendezvous.addresses) > 1:
        # Gloo would take the address that the host's name resolves to, which Debian sets to 127.0.1.1.
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
    environment.update(_determined(job, work, facts, rendezvous, environment, run_dir, master_url, session_token))
    environment["TRAINMASTER_RUN_DIR"] = run_dir
    environment["TRAINMASTER_DISTRIBUTED_PORT"] = str(rendezvous.distributed_port)
    environment["PYTHONPATH"] = os.pathsep.join(_python_path(package, environment.get("PYTHONPATH", "")))
    host = split_url(master_url).host
    for name in ("NO_PROXY", "no_proxy"):
        known = [entry for entry in environment.get(name, "").split(",") if entry]
        if host not in known:
            environment[name] = ",".join([*known, host])
    return environment


def _python_path(package: str, inherited: str) -> List[str]:
    # The alias comes before a real `determined`, to which it gives way: it tells it where this job's things are.
    return [package, os.path.join(package, "alias"), *(entry for entry in inherited.split(os.pathsep) if entry)]


def _determined(
    job: JobDescription,
    work: Work,
    facts: Facts,
    rendezvous: Rendezvous,
    environment: Mapping[str, str],
    run_dir: str,
    master_url: str,
    session_token: str,
) -> Dict[str, str]:
    url = split_url(master_url)
    offset = min(facts.slot_ids) if facts.slot_ids else 0
    variables = {
        "DET_MASTER": master_url,
        "DET_MASTER_ADDR": url.host,
        "DET_MASTER_HOST": url.host,
        "DET_MASTER_IP": url.host,
        "DET_MASTER_PORT": str(url.port),
        "DET_USE_TLS": "true" if url.scheme == "https" else "false",
        "DET_CLUSTER_ID": job.cluster_id,
        "DET_AGENT_ID": facts.node_name,
        "DET_CONTAINER_ID": "%s.%d" % (job.allocation_id, facts.node_rank),
        "DET_RESOURCES_ID": "%s.%d" % (job.allocation_id, facts.node_rank),
        "DET_RESOURCES_TYPE": job.resources_type,
        "DET_TASK_ID": job.task_id,
        "DET_TASK_TYPE": work.task_type,
        "DET_ALLOCATION_ID": job.allocation_id,
        "DET_SESSION_TOKEN": session_token,
        "DET_USER": work.owner,
        "DET_SLOT_IDS": _compact(list(facts.slot_ids)),
        "DET_SLOT_TYPE": job.slot_type,
        "DET_WORKDIR": os.path.join(run_dir, "workdir"),
        "DET_RUN_DIR": run_dir,
        "DET_CHIEF_IP": rendezvous.addresses[0],
        "DET_UNIQUE_PORT_OFFSET": str(offset),
        "DET_TASK_LOGGING_METADATA": _compact({"task_id": job.task_id, "allocation_id": job.allocation_id}),
        "C10D_PORT": str(rendezvous.torch_port),
        # Free ones: with Determined's own, which count from a node's first slot, jobs that share a node, each of
        # which sees its slots as the first, would meet.
        "INTER_TRAIN_PROCESS_COMM_PORT_1": str(rendezvous.distributed_port),
        "INTER_TRAIN_PROCESS_COMM_PORT_2": str(rendezvous.gather_port),
        "DTRAIN_SSH_PORT": str(rendezvous.launcher_port),
    }
    if work.owner_token:
        variables["DET_USER_TOKEN"] = work.owner_token
    trial = work.trial
    if trial is not None:
        variables.update(
            {
                "DET_EXPERIMENT_ID": str(trial.experiment_id),
                "DET_TRIAL_ID": str(trial.id),
                "DET_TRIAL_RUN_ID": str(trial.run_id),
                "DET_TRIAL_SEED": str(trial.seed),
                "DET_STEPS_COMPLETED": str(trial.steps_completed),
                "DET_EXPERIMENT_CONFIG": _compact(_without_keys(work.config)),
                "DET_HPARAMS": _compact(trial.hparams),
            }
        )
        if trial.latest_checkpoint is not None:
            variables["DET_LATEST_CHECKPOINT"] = trial.latest_checkpoint
    if "DET_INTER_NODE_NETWORK_INTERFACE" in environment:
        variables["DET_INTER_NODE_NETWORK_INTERFACE"] = environment["DET_INTER_NODE_NETWORK_INTERFACE"]
    # What is too long for a variable stands in info/trial.json alone.
    return {name: value for name, value in variables.items() if len(value.encode("utf-8")) <= _LONGEST}


def _without_keys(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration without the keys of a user's own store: an environment is no place for secrets. They
    stand in info/trial.json."""
    storage = config.get("checkpoint_storage")
    if not isinstance(storage, Mapping):
        return config
    kept = {key: value for key, value in storage.items() if key not in _KEYS}
    return {**config, "checkpoint_storage": kept}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def write_info(
    job: JobDescription,
    work: Work,
    facts: Facts,
    rendezvous: Rendezvous,
    *,
    run_dir: str,
    environment: Mapping[str, str],
) -> None:
    """Write `info/*.json`: rendezvous, resources, cluster and trial exactly as Determined's harness reads
    them (an unknown key makes it fail), user_data and `runtime.json`, which is ours. The folder is this
    user's alone and goes with the job: cluster.json holds the session token, as the harness wants it."""
    info = os.path.join(run_dir, "info")
    os.makedirs(info, mode=0o700, exist_ok=True)
    files: Dict[str, Any] = {
        "rendezvous": {
            "container_addrs": list(rendezvous.addresses),
            "container_rank": rendezvous.rank,
            "container_slot_counts": list(rendezvous.slot_counts),
        },
        "resources": {"gpu_uuids": list(facts.device_uuids)},
        "user_data": work.config.get("data") or {},
        "cluster": {
            "master_url": environment["DET_MASTER"],
            "session_token": environment["DET_SESSION_TOKEN"],
            "master_cert_name": environment.get("DET_MASTER_CERT_NAME"),
            "master_cert_file": environment.get("DET_MASTER_CERT_FILE"),
            "cluster_id": job.cluster_id,
            "agent_id": facts.node_name,
            "slot_ids": list(facts.slot_ids),
            "task_id": job.task_id,
            "allocation_id": job.allocation_id,
            "task_type": work.task_type,
        },
        "runtime": {
            "version": 1,
            "spool": job.spool,
            "checkpoint_storage": dict(work.checkpoint_storage),
            "slot_type": job.slot_type,
            "torch_port": rendezvous.torch_port,
            "distributed_port": rendezvous.distributed_port,
            "launcher_port": rendezvous.launcher_port,
            "worker_ports": [list(ports) for ports in rendezvous.worker_ports],
            "master_url_file": job.master_url_file,
            "master_url_owner": job.master_url_owner,
            "limits": dict(work.limits),
        },
    }
    trial = work.trial
    if trial is not None:
        files["trial"] = {
            "trial_id": trial.id,
            "experiment_id": trial.experiment_id,
            "trial_seed": trial.seed,
            "hparams": dict(trial.hparams),
            "config": dict(work.config),
            "steps_completed": trial.steps_completed,
            "trial_run_id": trial.run_id,
            "debug": bool(work.config.get("debug", False)),
            "inter_node_network_interface": environment.get("DET_INTER_NODE_NETWORK_INTERFACE"),
        }
        files["cluster"]["latest_checkpoint"] = trial.latest_checkpoint
    for name, content in files.items():
        with open(os.path.join(info, name + ".json"), "w", encoding="utf-8") as file:
            file.write(json.dumps(content))
