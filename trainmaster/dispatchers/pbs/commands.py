"""Builds argument vectors of PBS's commands. Pure: runs nothing and uses no shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainmaster.dispatchers.batch.requests import chunks
from trainmaster.dispatchers.pbs.parse import Format

# Times are printed and parsed in the time zone of the querying command.
IN_UTC = ("/usr/bin/env", "TZ=UTC0")


@dataclass(frozen=True)
class PbsPrograms:
    """Paths of PBS's commands."""

    qsub: str = "qsub"
    qstat: str = "qstat"
    qselect: str = "qselect"
    qdel: str = "qdel"
    qsig: str = "qsig"
    pbsnodes: str = "pbsnodes"


Listing = Callable[[PbsPrograms, Format, str], list[str]]


@dataclass(frozen=True)
class QsubRequest:
    """One submit: the arguments of qsub."""

    token: str
    queue: str
    select: str
    place: str
    command: Sequence[str]  # what runs on the first host
    resources: Mapping[str, str] = field(default_factory=dict)  # of the whole job
    user_options: Mapping[str, str] = field(default_factory=dict)  # letters and values, checked by options.check
    project: str | None = None


def submit(programs: PbsPrograms, job: QsubRequest) -> list[str]:
    """Build the qsub call, with a command instead of a script.

    With a script, on standard input or not, the process that PBS starts and signals is a login shell that waits for the
    script; SIGUSR2 (qsig) kills that shell and with it the job, and SIGTERM (qdel, walltime) leaves the script no time.
    With a command, that process is ours, and no login profile is read.

    `-f` keeps qsub from leaving a process behind that serves later submits; it outlives its caller and holds the
    caller's pipes (openpbs#1831, openpbs#609). `-o localhost:/dev/null` drops what PBS itself captures: the job writes
    its own output into its folder, at once; otherwise PBS copies a file over it at the end, or mails the user when it
    cannot. The host says that the place is the node's own, so that nothing is sent to the machine of the submit. (`-R
    oe` would drop it too, but then OpenPBS does not tell the node that the job is over: what was captured and the job's
    folder for temporary files stay there for ever, openpbs#2505.) No variable is exported (`-v`, `-V`): anybody may
    read them.
    """
    words = [programs.qsub, "-f", "-N", job.token, "-q", job.queue, "-r", "n", "-W", "umask=0022"]
    words += ["-j", "oe", "-o", "localhost:/dev/null", "-m", job.user_options.get("m", "n")]
    words += ["-l", f"select={job.select}", "-l", f"place={job.place}"]
    for name, value in job.resources.items():
        words += ["-l", f"{name}={value}"]
    for letter, value in job.user_options.items():
        if letter not in ("m", "P"):
            words += [f"-{letter}", value]
    project = job.user_options.get("P") or job.project
    if project:
        words += ["-P", project]
    return [*words, "--", *job.command]


def jobs(programs: PbsPrograms, form: Format, mark: str) -> list[str]:
    """Build one bulk query for all users' jobs that have not ended."""
    return [*IN_UTC, programs.qstat, "-f", *form.words(mark)]


def ended_since(programs: PbsPrograms, since: float) -> list[str]:
    """Build the query for ids of jobs in the history that changed since an epoch second. The history itself may hold
    two weeks of a site's jobs: far too much to print at each poll."""
    moment = datetime.fromtimestamp(since, UTC).strftime("%Y%m%d%H%M.%S")
    return [*IN_UTC, programs.qselect, "-x", "-s", "FM", f"-tm.gt.{moment}"]


def ended(programs: PbsPrograms, form: Format, mark: str, job_ids: Sequence[str]) -> Iterator[list[str]]:
    """Build queries for all attributes of ended jobs; `-E` lets one query cover a hundred of them."""
    for chunk in chunks(job_ids):
        yield [*IN_UTC, programs.qstat, "-x", "-f", "-E", *form.words(mark), *chunk]


def one(programs: PbsPrograms, form: Format, mark: str, job_id: str, *, history: bool) -> list[str]:
    return [*IN_UTC, programs.qstat, *(["-x"] if history else []), "-f", *form.words(mark), job_id]


def queues(programs: PbsPrograms, form: Format, mark: str) -> list[str]:
    return [programs.qstat, "-Q", "-f", *form.words(mark)]


def server(programs: PbsPrograms, form: Format, mark: str) -> list[str]:
    return [programs.qstat, "-B", "-f", *form.words(mark)]


def nodes(programs: PbsPrograms, form: Format, mark: str) -> list[str]:
    return [programs.pbsnodes, "-a", *form.words(mark)]


def version(programs: PbsPrograms) -> list[str]:
    return [programs.qsub, "--version"]


def cancel(programs: PbsPrograms, job_ids: Sequence[str]) -> Iterator[list[str]]:
    for chunk in chunks(job_ids):
        yield [programs.qdel, *chunk]


def signal(programs: PbsPrograms, job_ids: Sequence[str], name: str) -> Iterator[list[str]]:
    """Send a signal to every process of the job on its first host; the script forwards it to the others."""
    for chunk in chunks(job_ids):
        yield [programs.qsig, "-s", f"SIG{name}", *chunk]
