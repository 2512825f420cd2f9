from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.master import wait_for
from trainmaster.containers import ContainerStart, container_runtime

# Handles the signal once it has begun, as the runtime does. It ends apart from the second signal: bash can lose the
# status of a child that ends at the very moment at which a signal interrupts `wait`.
SLOW = f"""#!{sys.executable}
import pathlib, signal, sys, time
signal.signal(signal.SIGUSR2, lambda number, frame: pathlib.Path("heard").touch())
pathlib.Path("begun").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
sys.exit(3)
"""


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
        wait_for((tmp_path / "heard").exists, "the second signal in the process")
        (tmp_path / "go").touch()
        assert process.wait(30) == 3
    assert not list(scratch.iterdir())
