"""Runs one script in several processes with different ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainmaster.runtime.ports import ReservedPorts

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    reserved = ReservedPorts(1)
    reserved.close()
    return reserved.numbers[0]


def run_ranks(script: str, size: int, folder: Path, *, seconds: float = 120.0, **env: str) -> list[tuple[int, str]]:
    """Run `script` once a rank (RANK, WORLD_SIZE and friends set for one node); statuses and outputs by
    rank."""
    path = folder / "ranks.py"
    path.write_text(script)
    port = str(free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(path)],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "TMPDIR": str(folder),
                "PYTHONPATH": str(ROOT),
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(size),
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "TRAINMASTER_DISTRIBUTED_PORT": port,  # as the runtime chooses one for every job
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=seconds)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]
