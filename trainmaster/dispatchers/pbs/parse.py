"""Converts PBS's records of jobs, queues and nodes into typed values. Pure; unexpected output is never an error."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.dispatchers.pbs.formats import PrintedRecord

JOB_ID = re.compile(r"(\d+(?:\[\d*\])?)(?:\.([\w.-]+))?")
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d+) (\d+):(\d+):(\d+) (\d{4})")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}


@dataclass(frozen=True)
class PbsJob:
    """One job. Times are epoch seconds."""

    job_id: str
    name: str
    owner: str  # account, without the host
    state: str  # PBS's letter
    queue: str
    substate: int | None = None
    comment: str = ""
    exit_status: int | None = None
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    cpus: int = 0
    slots: int = 0  # of the resource that counts GPUs
    submitted_at: float | None = None
    started_at: float | None = None
    expected_start: float | None = None  # PBS estimates it for the jobs at the top of its queue
    changed_at: float | None = None
    walltime: int | None = None
    run_count: int = 0
    rerunable: bool = True  # as PBS spells it
    holds: str = ""  # Hold_Types: letters of u (owner), o (operator), s (PBS itself or an administrator), p (password)

    @property
    def restarts(self) -> int:
        """How often PBS requeued it after it had begun; for a waiting job, the number of runs. A job that is not
        rerunable (qsub -r n) is requeued only if it could not be started at all."""
        if not self.rerunable:
            return 0
        return self.run_count if self.state in ("Q", "H", "W") else max(0, self.run_count - 1)

    @property
    def ends_at(self) -> float | None:
        """When its time limit ends it, in epoch seconds; None if it does not run or has no limit."""
        return None if self.started_at is None or self.walltime is None else self.started_at + self.walltime

    @property
    def is_array(self) -> bool:
        return "[" in self.job_id


def job(record: PrintedRecord, gpu_resource: str) -> PbsJob | None:
    """Convert a record to a job; None when it lacks attributes that every job has."""
    if not JOB_ID.fullmatch(record.name) or not record.get("job_state"):
        return None
    return PbsJob(
        job_id=record.name,
        name=record.get("Job_Name"),
        owner=record.get("Job_Owner").rpartition("@")[0],  # an account may be user@site.org
        state=record.get("job_state").strip(),
        queue=record.get("queue"),
        substate=integer(record.get("substate")),
        comment=record.get("comment").strip(),
        exit_status=integer(record.get("Exit_status")),
        nodes=hosts(record.get("exec_host")),
        node_count=integer(record.get("Resource_List.nodect")) or 0,
        cpus=integer(record.get("Resource_List.ncpus")) or 0,
        slots=integer(record.get(f"Resource_List.{gpu_resource}")) or 0,
        submitted_at=moment(record.get("ctime")),
        started_at=moment(record.get("stime")),
        expected_start=moment(record.get("estimated.start_time")),
        changed_at=moment(record.get("mtime")),
        walltime=duration(record.get("Resource_List.walltime")),
        run_count=integer(record.get("run_count")) or 0,
        rerunable=truth(record.get("Rerunable") or "True"),
        holds=record.get("Hold_Types").strip().strip("n"),
    )


def submitted_id(stdout: str) -> str | None:
    """The id that qsub prints. A site's hook may print before it, so the last matching line counts."""
    for line in reversed(stdout.splitlines()):
        if JOB_ID.fullmatch(line.strip()) and "." in line:
            return line.strip()
    return None


def short_id(job_id: str) -> str:
    """The number of an id such as "123.server.site"."""
    return job_id.partition(".")[0]


def integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text.strip()) else None


def moment(text: str) -> float | None:
    """Epoch seconds of "Sat Nov 21 08:22:11 2026", printed in UTC (the queries set TZ), or of epoch seconds."""
    if re.fullmatch(r"\d{9,12}", text.strip()):
        return float(text)
    found = _DATE.fullmatch(text.strip())
    if found is None or found[1] not in _MONTHS.split():
        return None
    day, hour, minute, second, year = (int(part) for part in found.groups()[1:])
    return float(calendar.timegm((year, _MONTHS.split().index(found[1]) + 1, day, hour, minute, second, 0, 0, 0)))


def duration(text: str) -> int | None:
    """Seconds of "[[hours:]minutes:]seconds[.fraction]"; None for anything else."""
    found = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d*)?", text.strip())
    if not found:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (hours * 60 + minutes) * 60 + seconds


def size(text: str) -> int | None:
    """Bytes of "24684084kb", "4gb", "100" and the like; words (w) have eight bytes."""
    found = re.fullmatch(r"(\d+)([kmgtp]?)(b|w)?", text.strip().lower())
    return int(found[1]) * _UNITS[found[2]] * (8 if found[3] == "w" else 1) if found else None


def hosts(exec_host: str) -> tuple[str, ...]:
    """Hosts of "n1/0*4+n2/1", each once, in order."""
    names = (part.partition("/")[0].strip("( )") for part in exec_host.split("+"))
    return tuple(dict.fromkeys(name for name in names if name))


def truth(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "t", "y", "yes")


def server_version(records: Sequence[PrintedRecord], fallback: str) -> str:
    """Return the version of the server, for example "23.06.06"."""
    return next((record.get("pbs_version") for record in records if record.get("pbs_version")), fallback)
