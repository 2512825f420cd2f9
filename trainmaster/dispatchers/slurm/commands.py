"""Builds argument vectors of Slurm's commands. Pure: runs nothing and uses no shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.dispatchers.batch.requests import chunks

# The order matters to parse.queue: the name, which may contain anything, comes last.
QUEUE_FIELDS = (
    "JobID",
    "State",
    "Reason",
    "exit_code",
    "DerivedEC",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "PreemptTime",
    "RestartCnt",
    "NodeList",
    "Cluster",
    "Name",
)
# Further fields if the answer contains all users' jobs.
OWNER_FIELDS = ("UserName", "Partition", "NumNodes", "NumCPUs", "tres-alloc", "tres-per-job", "tres-per-node")
NODE_FIELDS = (
    "Partition",
    "NodeList",
    "StateLong",
    "CPUsState",
    "Gres",
    "GresUsed",
    "Time",
    "DefaultTime",
    "Available",
    "Memory",
    "OverSubscribe",
)
# The name, which may contain anything, comes last here too.
ACCOUNT_FIELDS = ("JobIDRaw", "State", "ExitCode", "DerivedExitCode", "Reason", "NodeList", "JobName")


# Times are printed as epoch seconds, in whatever time zone the site and this machine are. For queries only: sbatch
# would export the variable to jobs.
IN_SECONDS = ("/usr/bin/env", "SLURM_TIME_FORMAT=%s")


@dataclass(frozen=True)
class SlurmPrograms:
    """Paths of Slurm's commands."""

    sbatch: str = "sbatch"
    squeue: str = "squeue"
    scancel: str = "scancel"
    sinfo: str = "sinfo"
    sacct: str = "sacct"
    scontrol: str = "scontrol"


@dataclass(frozen=True)
class SbatchRequest:
    """One submit: the arguments of sbatch."""

    token: str
    partition: str
    folder: Path
    multi_node: bool
    grace: int  # seconds before the time limit at which the script gets SIGUSR2
    resources: Sequence[str]  # from resources.sbatch_words
    user_options: Mapping[str, str | None] = field(default_factory=dict)  # checked by options.check
    wckey: str | None = None
    exclude: Sequence[str] = ()


def submit(programs: SlurmPrograms, job: SbatchRequest) -> list[str]:
    """Build the sbatch call; the script comes on standard input.

    `--export=ALL` exports the scrubbed environment that sbatch itself is given. NONE would run the user's login
    profile on the node (up to two minutes, and a failure holds the job); NIL exists only from 23.02 on and takes
    PATH away. `--dependency=singleton` keeps a second job of the same token waiting while the first one lives.
    """
    words = [
        programs.sbatch,
        "--parsable",
        f"--job-name={job.token}",
        f"--partition={job.partition}",
        f"--chdir={job.folder}",
        # slurmd replaces %j and the like in the whole path.
        f"--output={str(job.folder).replace('%', '%%')}/output.txt",
        "--open-mode=append",
        "--export=ALL",
        "--no-requeue",
        "--dependency=singleton",
        f"--signal=B:USR2@{job.grace}",
        *job.resources,
    ]
    if job.wckey:
        words.append(f"--wckey={job.wckey}")
    if job.exclude:
        words.append(f"--exclude={','.join(job.exclude)}")
    words += [f"--{key}" if value is None else f"--{key}={value}" for key, value in job.user_options.items()]
    return words


def end_mark(mark: str) -> str:
    """Return the mark that ends a job in squeue's output. It differs from the field separator, because a name may begin
    with a line end."""
    return mark.replace("\x1f", "\x1e")


def queue(programs: SlurmPrograms, mark: str, *, everybody: bool = False, oldest_first: bool = False) -> list[str]:
    """Build one bulk query for all jobs of this account, or of all users, with ended ones that Slurm still remembers.
    It costs the controller two requests either way.

    The heading shows that there is an answer. The newest job comes first: a truncated answer then lacks jobs that were
    listed before, and their absence can be noticed.
    """
    whose = () if everybody else ("--me",)
    names = (*QUEUE_FIELDS[:-1], *(OWNER_FIELDS if everybody else ()), QUEUE_FIELDS[-1])
    fields = ",".join(f"{name}:{end_mark(mark) if name == 'Name' else mark}" for name in names)
    return [
        *IN_SECONDS,
        programs.squeue,
        "--all",
        *whose,
        "--states=all",
        f"--sort={'' if oldest_first else '-'}i",
        f"--Format={fields}",
    ]


def nodes(programs: SlurmPrograms, mark: str, *, backwards: bool = False) -> list[str]:
    """Build the query for every node in every partition, hidden ones too, with a heading."""
    fields = ",".join(f"{name}:{mark}" for name in NODE_FIELDS)
    return [programs.sinfo, "--all", "--Node", f"--sort={'-' if backwards else ''}N", f"--Format={fields}"]


def cancel(programs: SlurmPrograms, job_ids: Sequence[str]) -> list[list[str]]:
    """Build scancel calls, in chunks of job ids."""
    return [[programs.scancel, *chunk] for chunk in chunks(job_ids)]


def signal(programs: SlurmPrograms, job_ids: Sequence[str], name: str) -> list[list[str]]:
    """Send a signal to the batch script only, which forwards it; without `--batch` only the steps would get it."""
    return [[programs.scancel, "--batch", f"--signal={name}", *chunk] for chunk in chunks(job_ids)]


def show_job(programs: SlurmPrograms, job_id: str) -> list[str]:
    """With `--all`, because the job may be in a hidden partition, and with `--details`, because only then the highest
    status of the job's steps is printed."""
    return [programs.scontrol, "--all", "--details", "--oneliner", "show", "job", job_id]


def show_config(programs: SlurmPrograms) -> list[str]:
    return [*IN_SECONDS, programs.scontrol, "show", "config"]


def version(programs: SlurmPrograms) -> list[str]:
    return [programs.sbatch, "--version"]


def account(programs: SlurmPrograms, job_id: str) -> list[str]:
    """Build the accounting query for a job; `-D` shows every run of a requeued one, the newest last."""
    fields = ",".join(ACCOUNT_FIELDS)
    return [programs.sacct, "-X", "-D", "-P", "-n", "-S", "now-30days", "-j", job_id, "-o", fields]
