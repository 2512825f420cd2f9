"""A test cluster with another release of Slurm, from a suite of Debian in a chroot: `scripts/cluster release SUITE up`.

The chroot is made once (debootstrap, a minute). Every daemon and command enters it in a mount namespace of its own, so
that nothing stays mounted. The cluster's run folder is seen inside under the same path; munged runs outside.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from pathlib import Path

from tests.support.cluster import packages
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.configuration import MIN_JOB_AGE, Profile
from tests.support.cluster.layout import Layout

OFFSETS = {"trixie": 40, "sid": 50}  # of its ports from those of the first cluster
PACKAGES = "slurmctld,slurmd,slurm-client,munge,python3"
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol")
ENTER = """#!/bin/sh
# Run a command inside {root}: {suite}'s Slurm.
exec unshare --mount --propagation private /bin/sh -ec '
    mount --rbind /dev {root}/dev
    mount -t proc proc {root}/proc
    mount --rbind /sys {root}/sys
    mount -t tmpfs tmpfs {root}/run
    for file in passwd group; do mount --bind /etc/$file {root}/etc/$file; done
    mount --bind {run} {root}{run}
    exec chroot {root} "$@"
' enter "$@"
"""


class ReleaseCluster(Cluster):
    """Two nodes under the Slurm of a Debian suite. Memory is not limited: its control groups are not this machine's."""

    def __init__(self, suite: str, layout: Layout | None = None) -> None:
        if suite not in OFFSETS:
            raise packages.Unavailable(f"there is no suite {suite!r} here; there are {', '.join(OFFSETS)}")
        layout = (layout or Layout.from_environment()).beside(suite, OFFSETS[suite])
        self.suite = suite
        self.root = layout.cache / "releases" / suite
        self.way_in = (str(layout.run / "enter"),)
        settings: dict[str, str | None] = {
            "TaskPlugin": None,
            "JobCompType": None,
            "AccountingStorageType": None,
        }
        super().__init__(layout, Profile(settings, constrains_memory=False))

    def up(self, min_job_age: int = MIN_JOB_AGE) -> None:
        packages.install((*packages.SLURM, "debootstrap"))
        self._make_root()
        self._write_entrance()
        super().up(min_job_age)

    @property
    def programs(self) -> Path:
        """Folder of this release's commands."""
        return self.layout.run / "bin"

    def _make_root(self) -> None:
        if (self.root / "usr/sbin/slurmctld").exists():
            return
        self.root.parent.mkdir(parents=True, exist_ok=True)
        draft = self.root.with_name(f"{self.suite}.draft")
        argv = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", self.suite, str(draft)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise packages.Unavailable(f"debootstrap of {self.suite} failed: {done.stdout.strip().splitlines()[-1]}")
        draft.rename(self.root)

    def _write_entrance(self) -> None:
        run = self.layout.run
        self.programs.mkdir(parents=True, exist_ok=True)
        Path(f"{self.root}{run}").mkdir(parents=True, exist_ok=True)
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        script(
            run / "enter", ENTER.format(root=shlex.quote(str(self.root)), run=shlex.quote(str(run)), suite=self.suite)
        )
        for name in PROGRAMS:
            script(self.programs / name, f'#!/bin/sh\nexec {run}/enter {name} "$@"\n')


def script(path: Path, text: str) -> None:
    """Write an executable."""
    path.write_text(text)
    os.chmod(path, 0o755)
