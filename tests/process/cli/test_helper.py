"""`trainmaster helper show` prints what an administrator installs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from trainmaster.dispatchers.cluster.access import helper_client
from trainmaster.dispatchers.cluster.command_runner import DEFAULT_PATH
from trainmaster.dispatchers.cluster.jobfolder import helper

CONFIG = """
resource_manager:
  type: slurm
  job_storage_root: /shared/jobs
  environment: {SLURM_CONF: /etc/slurm/slurm.conf}
  commands: {sbatch: /opt/site/bin/sbatch}
  impersonation: sudo
  helper: /opt/trainmaster/helper
checkpoint_storage: {type: shared_fs, host_path: /shared, storage_path: checkpoints}
"""


def show(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "trainmaster.cli.admin", "helper", "show", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_file_is_the_program_itself() -> None:
    assert show("file") == helper_client.own_source().decode()


def test_the_policy_has_the_values_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "master.yaml").write_text(CONFIG)
    policy = helper.HelperPolicy(**json.loads(show("policy", "--config", str(tmp_path / "master.yaml"))))
    assert (policy.job_roots, policy.storage_roots) == (["/shared/jobs"], ["/shared/checkpoints"])
    assert policy.environment == {"SLURM_CONF": "/etc/slurm/slurm.conf"}
    assert policy.programs["sbatch"] == "/opt/site/bin/sbatch"


def test_policy_for_relocated_pbs_adds_its_folder_to_path(tmp_path: Path) -> None:
    for bin, expected in (("/opt/pbs", None), ("/site/pbs", f"{DEFAULT_PATH}:/site/pbs/bin")):
        text = f"resource_manager: {{type: pbs, job_storage_root: /jobs, environment: {{PBS_EXEC: {bin}}}}}\n"
        (tmp_path / "master.yaml").write_text(text)
        policy = helper.HelperPolicy(**json.loads(show("policy", "--config", str(tmp_path / "master.yaml"))))
        assert policy.environment.get("PATH") == expected


def test_the_line_for_sudo_and_the_steps(tmp_path: Path) -> None:
    (tmp_path / "master.yaml").write_text(CONFIG)
    line = 'svc ALL=(%people,!root) NOPASSWD: /opt/trainmaster/helper ""'
    words = ("--config", str(tmp_path / "master.yaml"), "--account", "svc", "--group", "people")
    assert show("sudoers", *words) == f"{line}\n"
    steps = show(*words)
    assert line in steps
    assert "chmod 1777 /shared/jobs" in steps
    assert "link-with-agent-user" in steps
