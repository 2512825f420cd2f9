"""Installs the helper as its page describes, for a service account and the two users of the test cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster import packages
from tests.support.cluster.layout import USERS
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users
from trainmaster.dispatchers.cluster.access import helper_client, setup
from trainmaster.dispatchers.cluster.jobfolder import job_files

SERVICE = "tmservice"  # the account that a master runs under
GROUP = "tmhpcusers"
PROGRAM = Path("/usr/local/libexec/trainmaster-helper-of-tests")
SUDOERS = Path("/etc/sudoers.d/trainmaster-tests")


class Installed:
    """One installation; `allow` writes the policy of a test. Raises Unavailable where it cannot be installed."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise Unavailable("not root, so nothing can be installed for sudo")
        self.policy = Path(job_files.POLICY)
        if self.policy.exists() and "trainmaster-tests" not in self.policy.read_text():
            raise Unavailable(f"{self.policy} belongs to a real installation")
        packages.install(("sudo",))
        ensure_users()
        subprocess.run(["groupadd", "--force", GROUP], check=True)
        if subprocess.run(["id", SERVICE], capture_output=True).returncode != 0:
            subprocess.run(["useradd", "--system", "--create-home", "--shell", "/bin/bash", SERVICE], check=True)
        for user in USERS:
            subprocess.run(["usermod", "--append", "--groups", GROUP, user], check=True)
        PROGRAM.parent.mkdir(mode=0o755, exist_ok=True)
        PROGRAM.write_bytes(helper_client.own_source())
        PROGRAM.chmod(0o755)
        SUDOERS.write_text(setup.sudoers_line(SERVICE, str(PROGRAM), GROUP) + "\n")
        SUDOERS.chmod(0o440)
        subprocess.run(["visudo", "-cqf", str(SUDOERS)], check=True)
        self.policy.parent.mkdir(mode=0o755, exist_ok=True)
        self.root = Path("/nonexistent")

    def allow(self, root: Path, environment: Mapping[str, str] | None = None, **more: object) -> None:
        self.root = root
        named = {
            "job_roots": [str(root)],
            "environment": dict(environment or {}),
            "denied_users": ["trainmaster-tests"],
        }
        self.policy.write_text(json.dumps({**named, **more}))
        self.policy.chmod(0o644)

    def remove(self) -> None:
        for path in (SUDOERS, PROGRAM, self.policy):
            path.unlink(missing_ok=True)
        for user in USERS:
            subprocess.run(["gpasswd", "--delete", user, GROUP], capture_output=True)
        subprocess.run(["groupdel", GROUP], check=True)
