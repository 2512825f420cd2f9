from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.support.master import wait_for
from trainmaster.containers import ContainerStart, container_runtime

SLOW = "#!/bin/sh\necho begun >begun\nwhile [ ! -e go ]; do sleep 0.02; done\nexit 3\n"


def test_a_warning_while_the_process_starts_does_not_end_it(tmp_path: Path) -> None:
    """Slurm may send it up to a minute early: with a short time limit, before the runtime can hear it."""
    (tmp_path / "slow").write_text(SLOW)
    (tmp_path / "slow").chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    start = ContainerStart(job_folder=tmp_path, python=str(tmp_path / "slow"), scratch=[str(scratch)])
    (tmp_path / "start.sh").write_text(container_runtime("none").start_script(start))
    with subprocess.Popen(["bash", str(tmp_path / "start.sh")]) as process:
        wait_for(lambda: list(scratch.iterdir()), "the script's own folder", every=0.001)
        process.send_signal(signal.SIGUSR2)
        wait_for((tmp_path / "begun").exists, "the process")
        process.send_signal(signal.SIGUSR2)
        (tmp_path / "go").touch()
        assert process.wait(30) == 3
    assert not list(scratch.iterdir())
