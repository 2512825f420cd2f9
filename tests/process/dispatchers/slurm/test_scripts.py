"""The job script, run here as slurmstepd would; `srun` is a stand-in that records its call."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from trainmaster.templates import render

SRUN = '#!/bin/bash\nprintf "%s\\n" "$@" >srun.words\nexec bash start.sh\n'
START = 'env >said\nexit "$(cat status)"\n'


class Script:
    """A job's folder with a start.sh that says what it got and ends with a status."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "it's the $HOME of jobs"
        self.folder.mkdir()
        (self.folder / "start.sh").write_text(START)
        (self.folder / "srun").write_text(SRUN)
        (self.folder / "srun").chmod(0o755)

    def run(
        self, *, status: int = 0, walltime: int = 0, nodes: int = 1, cpus: int = 0, **environ: str
    ) -> dict[str, str]:
        """The environment that start.sh saw. The script is read from standard input, as slurmstepd's copy is."""
        (self.folder / "status").write_text(str(status))
        script = render(
            "slurm_job.sh.j2",
            job_folder=self.folder,
            bash="/bin/bash",
            walltime=walltime,
            multi_node=nodes > 1,
            cpus_per_task=cpus,
            locale=["LANG", "LC_ALL"],
        )
        given = {"PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": str(nodes), **environ}
        path = self.folder.with_name("script")
        path.write_text(script)
        done = subprocess.run(["bash", str(path)], env=given, capture_output=True, timeout=20, check=False)
        assert done.returncode == status, done.stderr
        lines = (self.folder / "said").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def words(self) -> list[str]:
        """What srun was told."""
        return (self.folder / "srun.words").read_text().splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("status", [0, 3, 77])
def test_job_script_returns_status_of_its_program(script: Script, nodes: int, status: int) -> None:
    script.run(status=status, nodes=nodes)


def test_functions_of_a_login_profile_stay_outside(script: Script) -> None:
    functions = {"BASH_FUNC_module%%": "() { :; }", "BASH_FUNC_ml%%": "() { :; }"}
    assert not [name for name in script.run(**functions) if "BASH_FUNC" in name]  # type: ignore[arg-type]


def test_an_inner_srun_keeps_its_environment(script: Script) -> None:
    assert script.run(SLURM_EXPORT_ENV="NONE")["SLURM_EXPORT_ENV"] == "ALL"


def test_batch_script_unsets_slurm_step_id(script: Script) -> None:
    assert "SLURM_STEP_ID" not in script.run(SLURM_STEP_ID="4294967291")


def test_when_the_job_ends(script: Script) -> None:
    assert "TRAINMASTER_END_TIME" not in script.run()
    assert script.run(walltime=60, SLURM_JOB_END_TIME="1700000000")["TRAINMASTER_END_TIME"] == "1700000000"
    began = int(time.time())
    assert began + 60 <= int(script.run(walltime=60)["TRAINMASTER_END_TIME"]) <= time.time() + 60


def test_how_other_nodes_are_started(script: Script) -> None:
    """One task a node; CPUs are named, because Slurm 22.05 and 23.02 forget them. GPUs are not, because 23.02 refuses
    untyped ones where the job has typed ones; nor is MPI's plug-in, which is the site's to choose."""
    script.run(nodes=3, cpus=8)
    assert script.words() == [
        "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--cpus-per-task=8",
        "/bin/bash", "start.sh",
    ]  # fmt: skip
    script.run(nodes=2)
    assert not any("cpus" in word for word in script.words())


def test_the_sites_choice_of_mpi_stays(script: Script) -> None:
    """Determined sets SLURM_MPI_TYPE=pmi2, whatever the site has."""
    assert "SLURM_MPI_TYPE" not in script.run(nodes=2)
    assert script.run(nodes=2, SLURM_MPI_TYPE="pmix")["SLURM_MPI_TYPE"] == "pmix"
