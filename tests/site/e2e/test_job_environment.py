"""What a master sets for itself and its own commands reaches no training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import apptainer_command, python_image, slurm_cluster
from tests.support.job_environment import OF_LOCAL, OF_SLURM, OURS, PROBE, differences, of_training, probed
from tests.support.master import make_folder, remove_folder, serving
from tests.support.slurm.site import USER, make_slurm_master

__all__ = ["apptainer_command", "python_image", "slurm_cluster"]

IDENTITY = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")


def test_a_local_training_is_a_process_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_environment = {name: os.environ[name] for name in IDENTITY if name in os.environ}
    monkeypatch.setenv("OF_THE_MASTER", "1")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%s")
    before = os.umask(0o027)
    try:
        # A shell that runs the tests in the background has INT and QUIT ignored, `nohup` HUP.
        words = ["/usr/bin/env", "--default-signal=HUP,INT,QUIT", sys.executable, "-c", PROBE]
        bare = probed(subprocess.check_output(words, env=bare_environment, text=True))
        with serving("resource_manager: {type: local, slots: 1, poll_interval: 0.3}\n") as process:
            training = of_training(process.client())
    finally:
        os.umask(before)
    assert differences(training, bare, {**OURS, **OF_LOCAL}) == {}
    assert training["umask"] == 0o027


@pytest.mark.slurm
def test_a_training_on_slurm_is_a_job_like_any_other(
    slurm_cluster: Cluster, apptainer_command: Path, python_image: Path
) -> None:
    folder = make_folder()
    process = make_slurm_master(folder, slurm_cluster, apptainer_command, python_image, container="none")
    output = slurm_cluster.layout.job_root / f"{folder.name}.probe"
    try:
        process.start()
        script = f"#!/bin/bash\nexec /usr/bin/python3 - <<'END'\n{PROBE}\nEND\n"
        words = ["sbatch", "--wait", "--ntasks=1", "--gpus-per-node=1", "--open-mode=append", f"--output={output}"]
        output.touch()
        output.chmod(0o666)
        done = slurm_cluster.run_as(USER, words, stdin=script)
        assert done.returncode == 0, done.stderr
        bare = probed(output.read_text())
        training = of_training(process.client())
        assert differences(training, bare, {**OURS, **OF_SLURM}) == {}
        assert "SLURM_TIME_FORMAT" not in training["environment"]
    finally:
        process.clean_up()
        output.unlink(missing_ok=True)
        remove_folder(folder)
