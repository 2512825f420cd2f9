"""Records the output of another Slurm release's commands: `python -m tests.support.slurm.record SUITE` (as root).

Writes tests/data/slurm-VERSION for the parser tests that run everywhere.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.cluster.daemons import wait_until
from tests.support.cluster.release import ReleaseCluster
from tests.support.slurm.recorded import MARK
from trainmaster.dispatchers.slurm import commands

OWNER = "tmalice"
PROGRAMS = commands.SlurmPrograms()
QUERY = {"SLURM_TIME_FORMAT": "%s"}
WAITS = "sleep 300"
# Name of the job -> its options and its script.
JOBS: dict[str, tuple[tuple[str, ...], str]] = {
    "rec-done": ((), "true"),
    "rec-status": ((), "exit 3"),
    "rec-killed": ((), "exit 1"),
    "rec-launch": (("--output=/nonexistent/output",), "true"),
    "rec-cancelled": ((), WAITS),
    "rec-running": (("--nodes=2", "--ntasks=2", "--gpus-per-node=1"), WAITS),
    "rec-requeued": (("--requeue",), WAITS),
    "rec-requeue-held": (("--requeue",), WAITS),
    "rec-too-many-nodes": (("--nodes=9",), "true"),
    "rec-too-long": (("--time=9-00:00:00",), "true"),
    "rec-begin": (("--begin=now+1hour",), "true"),
    "rec-held": (("--hold",), "true"),
    "odd\nname\x1f|x": (("--hold",), "true"),
}
REFUSED = {
    "partition": ("--partition=nowhere",),
    "gpus": ("--gpus-per-node=9",),
    "both-gpus": ("--gpus-per-node=1", "--gres=gpu:1"),
    "memory": ("--mem=9T",),
    "cpus": ("--cpus-per-task=99",),
    "feature": ("--constraint=nosuch",),
    "license": ("--licenses=nosuch",),
    "node": ("--nodelist=n99",),
    "reservation": ("--reservation=nosuch",),
    "time": ("--time=soon",),
}


class Recorder:
    """One release, one folder of recordings."""

    def __init__(self, suite: str) -> None:
        self.cluster = ReleaseCluster(suite)
        self.cluster.down()
        shutil.rmtree(self.cluster.layout.run / "state", ignore_errors=True)  # jobs of earlier days
        self.cluster.up(min_job_age=300)
        self.version = self.cluster.command("sbatch", "--version").split()[-1]
        release = ".".join(self.version.split(".")[:2])
        self.folder = Path(__file__).parents[2] / "data" / f"slurm-{release}"
        self.folder.mkdir(exist_ok=True)

    def ask(self, argv: Sequence[str]) -> tuple[str, str]:
        done = self.cluster.run("env", *(f"{key}={value}" for key, value in QUERY.items()), *argv)
        return done.stdout, done.stderr

    def keep(self, name: str, argv: Sequence[str], stream: str = "out") -> None:
        """Standard output into `name.out`, or standard error into `name.err`."""
        out, err = self.ask(argv)
        (self.folder / f"{name}.{stream}").write_text(out if stream == "out" else err)

    def submit(self, options: Sequence[str], script: str) -> tuple[str, str]:
        """Output and error of sbatch."""
        words = " ".join(f"'{word}'" for word in ("--parsable", "--chdir=/tmp", "--output=/dev/null", *options))
        text = (
            f'printf "#!/bin/bash\\n{script}\\n" | setpriv --reuid={OWNER} --regid={OWNER} --init-groups sbatch {words}'
        )
        return self.ask(["bash", "-c", text])

    def state(self, job: str) -> str:
        return self.ask(["squeue", "-h", "-t", "all", "-j", job, "-O", "State"])[0].strip()

    def runs(self, job: str) -> bool:
        return self.state(job) == "RUNNING"

    def run(self) -> None:
        jobs = {}
        for name, (options, script) in JOBS.items():
            out, err = self.submit((f"--job-name={name}", *options), script)
            if out.strip():
                jobs[name] = out.strip().partition(";")[0]
            else:  # some releases refuse at once what others let wait for ever
                (self.folder / f"sbatch-{name.removeprefix('rec-')}.err").write_text(err)
        started = ("rec-cancelled", "rec-running", "rec-requeued", "rec-requeue-held")
        for name in started:
            wait_until(partial(self.runs, jobs[name]), 60, f"the start of {name}")
        command = self.cluster.command
        self.keep("job-running", commands.show_job(PROGRAMS, jobs["rec-running"]))
        command("scancel", jobs["rec-cancelled"])
        command("scontrol", "requeue", jobs["rec-requeued"])
        command("scontrol", "requeuehold", jobs["rec-requeue-held"])
        wait_until(lambda: self.state(jobs["rec-requeue-held"]) == "PENDING", 60, "the requeue")
        wait_until(lambda: self.state(jobs["rec-cancelled"]) == "CANCELLED", 60, "the cancellation")
        self.keep("squeue", self._of_all())
        self.keep("squeue-all", commands.queue(PROGRAMS, MARK, everybody=True))
        self.keep("sinfo", commands.nodes(PROGRAMS, MARK))
        for name in ("status", "cancelled", "launch"):
            self.keep(f"job-{name}", commands.show_job(PROGRAMS, jobs[f"rec-{name}"]))
        self.keep("job-unknown", commands.show_job(PROGRAMS, "99999"), "err")
        self.keep("config", commands.show_config(PROGRAMS))
        self.keep("version", commands.version(PROGRAMS))
        self.keep("sacct", commands.account(PROGRAMS, "1"), "err")
        for name, options in REFUSED.items():
            if error := self.submit(options, "true")[1]:  # not every release refuses the same at once
                (self.folder / f"sbatch-{name}.err").write_text(error)
        self.cluster.pause_controller()
        try:
            (self.folder / "sbatch-timeout.err").write_text(self.submit((), "true")[1])
            self.keep("squeue-timeout", commands.queue(PROGRAMS, MARK), "err")
            self.keep("scancel-timeout", commands.cancel(PROGRAMS, ["1"])[0], "err")
        finally:
            self.cluster.resume_controller()
        self.cluster.stop_controller()
        (self.folder / "sbatch-down.err").write_text(self.submit((), "true")[1])
        self.keep("squeue-down", commands.queue(PROGRAMS, MARK), "err")
        self.keep("scancel-down", commands.cancel(PROGRAMS, ["1"])[0], "err")
        self.cluster.start_controller()
        self.cluster.drain()
        (self.folder / "README.md").write_text(README.format(version=self.version, suite=self.cluster.suite))

    def _of_all(self) -> list[str]:
        """The question for one account's jobs, asked about all: the recorder is not the jobs' owner."""
        return [word for word in commands.queue(PROGRAMS, MARK) if word != "--me"]


README = """What Slurm {version} (Debian {suite}, accounting off, SLURM_TIME_FORMAT=%s) printed on the test cluster in a
chroot: standard output in `.out`, standard error in `.err`, by `python -m tests.support.slurm.record {suite}`.
The mark between fields is `\\x1f0123456789abcdef\\x1f`; a job of squeue ends with `\\x1e0123456789abcdef\\x1e`.
"""

if __name__ == "__main__":
    begun = time.monotonic()
    recorder = Recorder(sys.argv[1])
    try:
        recorder.run()
    finally:
        recorder.cluster.down()
    print(f"{recorder.folder} after {time.monotonic() - begun:.0f} s")
