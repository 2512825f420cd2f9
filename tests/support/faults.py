"""A master on real Slurm whose commands misbehave, and the check after every fault that nothing is lost or doubled."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import trainings
from tests.support.cluster.cluster import Cluster
from tests.support.master import ended_as, files, log_text, make_folder, remove_folder, validations, wait_for
from tests.support.slurm.site import USER, make_slurm_master
from tests.support.slurm.wrapped import Wrapped
from trainmaster.client.master import Master

# Every job records that it runs, in a file that only the test reads.
MARKED = """
import os
from trainmaster import core as marked

told = marked.get_cluster_info()
with open(told.trial.hparams["marks"], "a") as marks:
    marks.write(f"{os.environ['SLURM_JOB_ID']} {told.allocation_id}\\n")
""" + trainings.COUNTING  # fmt: skip
# Variables of users and sites that may be in the environment of a master.
POISON = {
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "JobID",
    "SQUEUE_STATES": "CANCELLED",
    "SQUEUE_SORT": "S",
    "SQUEUE_PARTITION": "nowhere",
    "SBATCH_PARTITION": "nowhere",
    "SBATCH_HOLD": "1",
    "SBATCH_JOB_NAME": "mine",
    "SINFO_FORMAT": "%n",
    "SLURM_CLUSTERS": "elsewhere",
    "SLURM_TIME_FORMAT": "relative",
    "SACCT_FORMAT": "JobID",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "de_DE.UTF-8",
}


class Site:
    """One master, its misbehaving commands, and its trials."""

    def __init__(self, folder: Path, cluster: Cluster, *, poll: float = 0.5, job_root: Path | None = None) -> None:
        self.cluster = cluster
        self.process = make_slurm_master(
            folder, cluster, Path("/bin/false"), Path("none"), container="none", environment=POISON
        )
        commands = folder / "commands"
        commands.mkdir()
        self.wrapped = Wrapped(commands)
        self.marks = folder / "marks"
        self.marks.touch()
        self.marks.chmod(0o666)
        text = self.process.config.read_text()
        self.jobs = job_root or Path(re.findall(r"job_storage_root: (\S+)", text)[0])
        named = ", ".join(f"{name}: {path}" for name, path in self.wrapped.commands.items())
        text = re.sub(r"poll_interval: \S+", f"poll_interval: {poll}\n  commands: {{{named}}}", text)
        text = re.sub(r"job_storage_root: \S+", f"job_storage_root: {self.jobs}", text)
        self.process.config.write_text(text)

    def start(self) -> Master:
        self.process.start()
        (self.wrapped.folder / "master.pid").write_text(str(self.process.pid))
        return self.process.client("admin")

    def gate(self, name: str = "gate") -> dict[str, Any]:
        """Hyperparameters of trials that go no further than their second epoch until `open`: however late the last one
        begins, the first one has not ended."""
        return {"wait_at": 2, "wait_for": str(self.marks.with_name(name))}

    def open(self, name: str = "gate") -> None:
        self.marks.with_name(name).touch()

    def create(self, master: Master, trials: int = 1, *, options: Sequence[str] = (), **hparams: object) -> int:
        """An experiment of so many trials at once, of one core each."""
        text = trainings.experiment(
            {"name": "random", "metric": "error", "max_trials": trials},
            marks=str(self.marks),
            keys={
                "resources": {"slots_per_trial": 0, "resource_pool": "main"},
                "slurm": {"sbatch_args": list(options)},
            },
            **hparams,
        )
        return master.create_experiment(text, files(train__py=MARKED)).id

    def folders(self, master: Master, number: int) -> dict[int, Path]:
        """The newest job folder of each trial."""
        return {
            trial.id: self.jobs / str(master.task(trial.task_id)["allocations"][-1]["jobName"])
            for trial in master.trials(number)
        }

    def reports(self, master: Master, number: int, trials: int, steps: int = 1) -> None:
        """Wait until all trials of an experiment have reported that many steps."""
        wait_for(
            lambda: sum(trial.batches >= steps for trial in master.trials(number)) >= trials,
            f"step {steps} of {trials} trials",
            90,
        )

    def marked(self) -> list[tuple[str, str]]:
        """Scheduler's id and attempt of every job that ran the training."""
        return [(line.split(" ")[0], line.split(" ")[1]) for line in self.marks.read_text().splitlines()]

    def nothing_is_lost_or_doubled(
        self,
        master: Master,
        number: int,
        *,
        epochs: int,
        attempts: Mapping[int, int] | int = 1,
        state: str = "COMPLETED",
    ) -> None:
        """The end of an experiment, and: every trial had just as many attempts as its faults explain and was charged
        for none, every report counts once, no attempt was run by two jobs, no job is left over, nothing is a bug.

        Args:
            attempts: of all trials, or by trial for those that had another number than one.
        """
        ended_as(master, number, state, 120)
        expected = attempts if isinstance(attempts, int) else 1
        different = {} if isinstance(attempts, int) else dict(attempts)
        jobs: dict[str, str] = {}
        tokens: list[str] = []
        for trial in master.trials(number):
            text = log_text(master, trial.id)
            assert (trial.state, trial.restarts) == (state, 0), f"{trial.reason}\n{text}"
            assert trial.attempts == different.get(trial.id, expected), text
            if state == "COMPLETED":
                steps = validations(master, [trial.id])[trial.id]
                assert sorted(set(steps)) == list(range(1, epochs + 1)), text
                if trial.attempts == 1:
                    assert len(steps) == epochs, f"a report counts twice: {steps}"
                    assert trial.summary["avg_metrics"]["loss"]["count"] == epochs
            for allocation in master.task(trial.task_id)["allocations"]:
                jobs[allocation["allocationId"]] = str(allocation["jobId"])
                tokens.append(str(allocation["jobName"]))
        ran = [(job, attempt) for job, attempt in self.marked() if attempt in jobs]
        assert max(Counter(attempt for _, attempt in ran).values(), default=1) == 1, f"an attempt ran twice: {ran}"
        assert all(jobs[attempt] == job for job, attempt in ran), f"a job without the lease ran: {ran}, {jobs}"
        mine = f"--name={','.join(tokens)}"
        wait_for(lambda: not self.cluster.command("squeue", "-h", mine).strip(), "the last job to leave Slurm")
        assert self.process.errors() == []


@contextmanager
def site(cluster: Cluster, *, poll: float = 0.5, job_root: Path | None = None) -> Iterator[Site]:
    folder = make_folder()
    made = Site(folder, cluster, poll=poll, job_root=job_root)
    jobs = made.jobs
    try:
        yield made
    finally:
        for fault in (*made.wrapped.folder.glob("now.*"), *made.wrapped.folder.glob("plan.*")):
            fault.unlink()
        made.process.clean_up()
        remove_folder(folder)
        if job_root is None:
            shutil.rmtree(jobs, ignore_errors=True)


@contextmanager
def small_disk(cluster: Cluster, megabytes: int) -> Iterator[Path]:
    """A folder of the jobs' user on a disk of its own."""
    root = cluster.layout.job_root / f"disk-{os.getpid()}"
    root.mkdir()
    cluster_user = pwd.getpwnam(USER)
    options = f"size={megabytes}m,mode=700,uid={cluster_user.pw_uid},gid={cluster_user.pw_gid}"
    mounted = cluster.run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root))
    assert mounted.returncode == 0, mounted.stderr
    try:
        yield root
    finally:
        cluster.run("umount", "--lazy", str(root))
        root.rmdir()
