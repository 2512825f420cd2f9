"""Real jobs: a staged job folder, a real runtime.zip, real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.runtime.master import TOKEN, FakeMaster
from trainmaster.containers.base import runtime_arguments
from trainmaster.runtime.archive import build_runtime_zip


def make_work(entrypoint: str | list[str], **changes: Any) -> dict[str, Any]:
    """The master's answer to a lease."""
    work = {
        "trial": {
            "id": 7,
            "experiment_id": 3,
            "request_id": "1",
            "seed": 42,
            "hparams": {"lr": 0.1, "layers": [1, 2]},
            "run_id": 1,
            "steps_completed": 0,
            "latest_checkpoint": None,
        },
        "task_type": "TRIAL",
        "config": {"name": "digits", "searcher": {"name": "single", "metric": "accuracy", "max_length": 10}},
        "entrypoint": entrypoint,
        "environment": {"GREETING": "hello 'you' \"there\" A=b=c"},
        "checkpoint_storage": {},
        "num_nodes": 1,
        "owner": "ada",
        "preempt": None,
    }
    work.update(changes)
    return work


class StagedJob:
    """A job folder as a dispatcher leaves it, and the processes started from it."""

    def __init__(self, folder: Path, master: FakeMaster, **changes: Any) -> None:
        self.folder = folder
        self.master = master
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "secrets").mkdir(parents=True, mode=0o700)
        description = {
            "version": 1,
            "allocation_id": "3.7.1",
            "task_id": "3.7",
            "token": "tm-abc-3.7.1",
            "cluster_id": "c0ffee",
            "master_url": master.url,
            "master_url_file": None,
            "scheduler": "local",
            "resources_type": "slurm-job",
            "pool": "main",
            "slots": 2,
            "slot_type": "cpu",
            "walltime_grace": 2,
            "heartbeat": 0.5,
            # Long enough for any machine: tests of what happens afterwards say less.
            "lease_patience": 60,
            "final_patience": 60,
            "term_grace": 0.3,
            "kill_grace": 60,
            "environment": {"DET_SLURM_RENDEZVOUS_IFACE": "lo"},
        }
        description.update(changes)
        (folder / "job.json").write_text(json.dumps(description))
        (folder / "secrets" / "token").write_text(TOKEN + "\n")
        (folder / "runtime.zip").write_bytes(build_runtime_zip())

    def start(
        self,
        *,
        node_rank: int = 0,
        num_nodes: int = 1,
        job_id: str = "101",
        python: str = sys.executable,
        control_group: Path | None = None,
        pass_fds: Sequence[int] = (),
        **env: str,
    ) -> subprocess.Popen[str]:
        """Start one node's runtime as start.sh does."""
        command = [python, *runtime_arguments(self.folder)]
        if control_group is not None:
            enter = f'echo $$ > {control_group}/cgroup.procs && exec "$@"'
            command = ["sh", "-c", enter, "sh", *command]
        process = subprocess.Popen(
            command,
            env={
                "PATH": os.environ["PATH"],
                "HOME": os.environ.get("HOME", "/"),
                "TRAINMASTER_JOB_ID": job_id,
                "TRAINMASTER_NODE_RANK": str(node_rank),
                "TRAINMASTER_NUM_NODES": str(num_nodes),
                "TRAINMASTER_NODE_NAME": f"n{node_rank}",
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=pass_fds,
        )
        self.processes.append(process)
        return process

    def run(self, seconds: float = 120.0, **arguments: Any) -> tuple[int, str]:
        """Run to the end; status and what the scheduler would capture."""
        process = self.start(**arguments)
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output

    def exit_record(self, rank: int = 0) -> Any:
        return json.loads((self.folder / "exit" / f"{rank}.json").read_text())

    def spool(self, stream: str) -> list[Any]:
        path = self.folder / "spool" / f"{stream}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def clean_up(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
