"""Reads the job's description (`job.json`, `secrets/token`) and the work that the master gives it (the answer to
the lease)."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from trainmaster.runtime.errors import BadJobFolder
from trainmaster.runtime.record import Record

JOB_VERSION = 1
RUNTIME = "runtime.zip"
SHARED_CONTEXT = "context.tgz"  # the archive of the user's files, where several jobs share it
MASTER_CERTIFICATE = "master.crt"  # in the job folder: what to trust (PEM), where systems do not know it


class JobDescription(Record):
    """The content of `job.json`. Times are seconds."""

    folder: str
    allocation_id: str
    task_id: str
    token: str  # the job's name at the scheduler; no secret
    cluster_id: str
    master_url: str
    master_url_file: Optional[str]
    scheduler: str
    resources_type: str
    pool: str
    slots: int
    slot_type: str
    master_url_owner: Optional[int] = None  # uid of the account that writes the file
    walltime_grace: float = 120.0
    heartbeat: float = 15.0
    lease_patience: float = 600.0
    rendezvous_patience: float = 1800.0
    final_patience: float = 10.0  # how long a master that is away is waited for at the end
    term_grace: float = 5.0  # between a SIGTERM from the scheduler and the one the user's process gets
    kill_grace: float = 10.0  # between SIGTERM and SIGKILL for the user's processes
    orphaned_after: float = 0.0  # of a master that gives no sign, until the job ends; 0: it never does
    node_data: str = ""  # the folder of the node for copies of data; empty: there is none
    node_data_limit: Optional[int] = None  # bytes of all copies of an account
    environment: Mapping[str, str] = {}

    @property
    def spool(self) -> str:
        return os.path.join(self.folder, "spool")


class Trial(Record):
    """The trial that this job runs."""

    id: int
    experiment_id: int
    request_id: str
    seed: int
    hparams: Mapping[str, Any]
    run_id: int
    steps_completed: int
    latest_checkpoint: Optional[str]


class Work(Record):
    """The answer to the lease: what is to run."""

    trial: Optional[Trial]
    task_type: str
    config: Mapping[str, Any]
    entrypoint: Union[str, Tuple[str, ...]]
    environment: Mapping[str, str]
    checkpoint_storage: Mapping[str, Any]
    num_nodes: int
    owner: str
    files: Optional[Tuple[Mapping[str, Any], ...]]  # the user's, when they are few and small (context.write_files)
    context_size: int  # bytes of the archive of the user's files
    preempt: Optional[str]  # the reason, when the job is to leave before it began
    owner_token: str = ""  # by which the user's programs act as the job's owner; empty: they do not
    limits: Mapping[str, Any] = {}  # of the master, for one report


def read_job(folder: str) -> JobDescription:
    """Read `job.json`. Raises BadJobFolder with a sentence that names the file and the key."""
    path = os.path.join(folder, "job.json")
    try:
        with open(path, encoding="utf-8") as file:
            raw = json.loads(file.read())
    except FileNotFoundError:
        raise BadJobFolder(
            "%s is missing: start the runtime with the job folder that the master staged" % path
        ) from None
    except (OSError, ValueError) as error:
        raise BadJobFolder("%s cannot be read: %s" % (path, error)) from error
    if not isinstance(raw, dict) or raw.get("version") != JOB_VERSION:
        raise BadJobFolder(
            "%s: version %d is wanted; the master and runtime.zip do not belong together" % (path, JOB_VERSION)
        )
    take = _Taker(raw, path)
    url_file, url_owner = raw.get("master_url_file"), raw.get("master_url_owner")
    return JobDescription(
        folder=folder,
        allocation_id=take.text("allocation_id"),
        task_id=take.text("task_id"),
        token=take.text("token"),
        cluster_id=take.text("cluster_id"),
        master_url=take.text("master_url"),
        master_url_file=None if url_file is None else str(url_file),
        master_url_owner=url_owner if isinstance(url_owner, int) else None,
        scheduler=take.text("scheduler"),
        resources_type=take.text("resources_type"),
        pool=take.text("pool", ""),
        slots=int(take.number("slots", 0)),
        slot_type=take.text("slot_type", "cpu"),
        walltime_grace=take.number("walltime_grace", JobDescription.walltime_grace),
        heartbeat=take.number("heartbeat", JobDescription.heartbeat),
        lease_patience=take.number("lease_patience", JobDescription.lease_patience),
        rendezvous_patience=take.number("rendezvous_patience", JobDescription.rendezvous_patience),
        final_patience=take.number("final_patience", JobDescription.final_patience),
        term_grace=take.number("term_grace", JobDescription.term_grace),
        kill_grace=take.number("kill_grace", JobDescription.kill_grace),
        orphaned_after=take.number("orphaned_after", JobDescription.orphaned_after),
        node_data=take.text("node_data", ""),
        node_data_limit=int(take.number("node_data_limit")) if raw.get("node_data_limit") is not None else None,
        environment=take.texts("environment"),
    )


def with_certificate(folder: str, environ: Mapping[str, str]) -> Dict[str, str]:
    """Add to `environ` the path of the certificate that authenticates the master, if the job folder has one."""
    path = os.path.join(folder, MASTER_CERTIFICATE)
    return {**environ, "DET_MASTER_CERT_FILE": path} if os.path.exists(path) else dict(environ)


def read_token(folder: str) -> str:
    """Read the session token; the file may be gone afterwards. Raises BadJobFolder."""
    path = os.path.join(folder, "secrets", "token")
    try:
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        raise BadJobFolder("%s cannot be read: %s" % (path, error)) from error
    if not token or any(not 33 <= ord(letter) <= 126 for letter in token):
        raise BadJobFolder("%s holds no token: one line of printable characters is wanted" % path)
    return token


def parse_work(raw: Any) -> Work:
    """Check the lease's answer. Raises BadJobFolder when it is not of the protocol that this runtime speaks."""
    where = "the master's answer to the lease"
    if not isinstance(raw, dict):
        raise BadJobFolder("%s is not a JSON object" % where)
    take = _Taker(raw, where)
    entrypoint = raw.get("entrypoint")
    if isinstance(entrypoint, list) and entrypoint and all(isinstance(word, str) for word in entrypoint):
        entrypoint = tuple(entrypoint)
    elif not isinstance(entrypoint, str) or not entrypoint.strip():
        raise BadJobFolder("%s: entrypoint must be a command line or a list of words" % where)
    preempt = raw.get("preempt")
    return Work(
        trial=_parse_trial(raw["trial"], where) if raw.get("trial") else None,
        task_type=take.text("task_type", "TRIAL"),
        config=take.mapping("config"),
        entrypoint=entrypoint,
        environment=take.texts("environment"),
        checkpoint_storage=take.mapping("checkpoint_storage"),
        num_nodes=int(take.number("num_nodes", 1)),
        owner=take.text("owner", ""),
        files=_listed(raw.get("files"), where),
        context_size=int(take.number("context_size", 0)),
        preempt=str(preempt.get("reason") or "master") if isinstance(preempt, dict) else None,
        owner_token=take.text("owner_token", ""),
        limits=take.mapping("limits"),
    )


def _listed(raw: Any, where: str) -> Optional[Tuple[Mapping[str, Any], ...]]:
    if raw is None:
        return None
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        raise BadJobFolder("%s: files must be a list of objects" % where)
    return tuple(raw)


def _parse_trial(raw: Any, where: str) -> Trial:
    where += ", trial"
    if not isinstance(raw, dict):
        raise BadJobFolder("%s is not a JSON object" % where)
    take = _Taker(raw, where)
    checkpoint = raw.get("latest_checkpoint")
    return Trial(
        id=int(take.number("id")),
        experiment_id=int(take.number("experiment_id")),
        request_id=take.text("request_id", ""),
        seed=int(take.number("seed", 0)),
        hparams=take.mapping("hparams"),
        run_id=int(take.number("run_id", 0)),
        steps_completed=int(take.number("steps_completed", 0)),
        latest_checkpoint=None if checkpoint is None else str(checkpoint),
    )


class _Taker:
    """Reads typed values from a JSON object. Raises BadJobFolder with a sentence that names the key."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self._raw = raw
        self._where = where

    def text(self, key: str, default: Optional[str] = None) -> str:
        value = self._raw.get(key, default)
        if not isinstance(value, str):
            raise BadJobFolder("%s: %s must be a string, not %r" % (self._where, key, value))
        return value

    def number(self, key: str, default: Optional[float] = None) -> float:
        value = self._raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadJobFolder("%s: %s must be a number, not %r" % (self._where, key, value))
        return value

    def mapping(self, key: str) -> Dict[str, Any]:
        value = self._raw.get(key) or {}
        if not isinstance(value, dict):
            raise BadJobFolder("%s: %s must be an object, not %r" % (self._where, key, value))
        return value

    def texts(self, key: str) -> Dict[str, str]:
        value = self.mapping(key)
        for name, text in value.items():
            # A name with "=" or a NUL anywhere cannot be passed to a process at all.
            if not isinstance(text, str) or not name or "=" in name or "\0" in name + text:
                raise BadJobFolder("%s: %s.%s cannot be an environment variable" % (self._where, key, name))
        return value
