"""Builds the job of a standalone task, and the work order that the job gets; `job_spec` does the same for trials."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.secrets import for_job
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, User
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.files import archives
from trainmaster.master.services.orchestration.task_orchestrator import NOTEBOOK, SHELL, TENSORBOARD
from trainmaster.master.services.scheduling.job_spec import devices_of, environment_for, in_shell
from trainmaster.master.values.configs import StoredTask
from trainmaster.master.values.stored import Json

_PYTHON = ("python3", "-m")


def job_of(session: Session, allocation: Allocation) -> tuple[StoredTask, dict[str, str]]:
    """Return the configuration of an attempt's task, and the files in its job's folder `secrets`."""
    row = session.execute(
        select(Standalone.config, Standalone.secrets).where(Standalone.task_id == allocation.task_id)
    ).one()
    return row.config, row.secrets.of_job if row.secrets else {}


def work_for(session: Session, allocation: Allocation, slot_type: str) -> Json:
    """Return the work order that the runtime gets with the lease (see docs/architecture/in-job-protocol.md). Raises
    NotFound."""
    query = select(Standalone, User.username).join(User, User.id == Standalone.owner_id)
    query = query.where(Standalone.task_id == allocation.task_id)
    row = session.execute(query).first()
    if row is None:
        raise NotFound(f"The task of the attempt {allocation.id} has been deleted.")
    task, owner = row
    size = archives.size(session, allocation.task_id)
    return {
        "task_type": task.kind,
        "trial": None,
        "config": for_job(task.config.to_json()),
        "entrypoint": _in_folder(_work_dir(task.config, allocation, owner), _program(task)),
        "environment": environment_for(task.config, devices_of(allocation.slots, slot_type)),
        "checkpoint_storage": {},
        "num_nodes": allocation.num_nodes,
        "owner": owner,
        "context_size": size,
        "files": archives.listed(archives.small(session, allocation.task_id, size)),
        "preempt": {"reason": allocation.preempt_reason} if allocation.preempt_at else None,
    }


def _program(task: Standalone) -> list[str]:
    if task.kind == NOTEBOOK:
        return [*_PYTHON, "trainmaster.launchers.notebook", "--idle", task.config.notebook_idle_type]
    if task.kind == SHELL:
        return [*_PYTHON, "trainmaster.launchers.shell"]
    if task.kind == TENSORBOARD:
        folders = [f"--show={name}={path}" for name, path in task.shows.folders.items()] if task.shows else []
        return [*_PYTHON, "trainmaster.launchers.tensorboard", *folders, "--", *task.config.tensorboard_args]
    given = in_shell(task.config.entrypoint or "")
    return ["sh", "-c", given] if isinstance(given, str) else list(given)


def _in_folder(folder: str, program: Sequence[str]) -> list[str]:
    """Return the command that starts the program in `folder`; empty: in the folder of the user's files. `~` at the
    beginning is the home of the job's account."""
    home, _, rest = folder.partition("/")
    if home == "~":
        return ["sh", "-c", 'cd -- "$HOME/$1" && shift && exec "$@"', "sh", rest, *program]
    return ["sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", folder, *program] if folder else list(program)


def _work_dir(config: StoredTask, allocation: Allocation, owner: str) -> str:
    known = {"DET_USER": owner, "AGENT_USER": allocation.run_as or owner}
    return re.sub(r"\$\{?(DET_USER|AGENT_USER)\b\}?", lambda match: known[match[1]], config.work_dir or "")
