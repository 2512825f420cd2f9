"""Parses PBS's output: its three formats, and records of jobs, queues and nodes. Pure; odd output is never an error.

Of the formats `-F dsv`, plain `-f` and `-F json`, only `dsv` with a new random delimiter for each query cannot be
forged: any user may put line ends into a job's account name or variables, and plain `-f` prints them as they are, so
that a whole record "Job Id: ..." can be forged. JSON up to release 23.06.06 is often not JSON at all (openpbs#2604
fixed it; openpbs#2704 keeps names that look like numbers as text).
"""

from __future__ import annotations

import calendar
import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Format(enum.StrEnum):
    """Output formats of PBS."""

    DSV = "dsv"
    TEXT = "text"
    JSON = "json"

    def words(self, mark: str) -> list[str]:
        """Return the options that select it; `mark` separates the fields of `dsv`."""
        match self:
            case Format.DSV:
                return ["-F", "dsv", "-D", mark]
            case Format.JSON:
                return ["-F", "json"]
            case Format.TEXT:
                return []


@dataclass(frozen=True)
class PrintedRecord:
    """One job, queue, server or node: its name and attributes. Resources have names such as Resource_List.walltime."""

    name: str
    attributes: Mapping[str, str]

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")


# "Job Id: 1.server", "Queue: workq", "Server: host", and pbsnodes' "Name=host".
_HEAD = re.compile(r"(?:Job Id: *|Queue: *|Server: *|Name=)(\S+)")


def read_records(form: Format, stdout: str, mark: str) -> tuple[list[PrintedRecord], list[str]]:
    """Return the records of one answer, and the lines that cannot be parsed."""
    match form:
        case Format.DSV:
            return dsv_records(stdout, mark)
        case Format.JSON:
            return json_records(stdout)
        case Format.TEXT:
            return text_records(stdout)


def dsv_records(stdout: str, mark: str) -> tuple[list[PrintedRecord], list[str]]:
    """Parse one record per line; line ends in values arrive as a backslash and an n."""
    records: list[PrintedRecord] = []
    odd: list[str] = []
    for line in stdout.split("\n"):
        if not line.strip():
            continue
        head, *fields = line.split(mark)
        name = _HEAD.fullmatch(head.strip())
        # A banner may look like a record, but it cannot contain the mark.
        if name is None or not fields:
            odd.append(line.strip()[:200])
            continue
        pairs = (field.partition("=") for field in fields)
        records.append(PrintedRecord(name[1], {key.strip(): value for key, equals, value in pairs if equals}))
    return records, odd


def text_records(stdout: str) -> tuple[list[PrintedRecord], list[str]]:
    """Parse plain `qstat -f`, `qstat -Bf`, `qstat -Qf` and `pbsnodes -a`: attributes are indented, long values go on
    behind a tab on the next line."""
    records: list[PrintedRecord] = []
    odd: list[str] = []
    name: str | None = None
    attributes: dict[str, str] = {}
    last: str | None = None

    def close() -> None:
        if name is not None:
            records.append(PrintedRecord(name, attributes))

    for line in stdout.split("\n"):
        if not line.strip():
            continue
        head = _HEAD.fullmatch(line.rstrip())
        if head or re.fullmatch(r"[A-Za-z0-9][\w.\-\[\]]*", line.rstrip()):  # pbsnodes prints the bare name
            close()
            name, attributes, last = head[1] if head else line.rstrip(), {}, None
        elif line.startswith("\t") and last is not None:
            attributes[last] += line[1:]
        elif line.startswith("    ") and name is not None and " = " in f"{line} ":
            last, _, value = line.strip(" ").partition(" = ")
            last = last.removesuffix(" =").strip()
            attributes[last] = value
        else:
            odd.append(line.strip()[:200])
    close()
    return records, odd


def json_records(stdout: str) -> tuple[list[PrintedRecord], list[str]]:
    """Parse `-F json`, also invalid JSON. Lines of a broken answer that cannot be recovered are returned as
    unparsed."""
    start = stdout.find("{")
    if start < 0:
        return [], [line.strip()[:200] for line in stdout.splitlines() if line.strip()]
    odd = [line.strip()[:200] for line in stdout[:start].splitlines() if line.strip()]
    try:
        # Text as it stands, so that a job called 1e5 keeps its name.
        data = json.loads(stdout[start:], strict=False, parse_int=str, parse_float=str, parse_constant=str)
    except ValueError:
        data, broken = _by_lines(stdout[start:])
        odd += broken
    if not isinstance(data, dict):
        return [], [*odd, stdout.strip()[:200]]
    sections = [data.get(key) for key in ("Jobs", "Queue", "Server", "nodes")]
    records = [
        PrintedRecord(str(name), _flat(attributes))
        for section in sections
        if isinstance(section, dict)
        for name, attributes in section.items()
        if isinstance(attributes, dict)
    ]
    return records, odd


def _flat(attributes: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in attributes.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _plain(value)
    return flat


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_plain(item) for item in value)
    return "" if value is None else str(value)


_OPENS = re.compile(r'\s*"(.*)"\s*:\s*\{\s*')
_CLOSES = re.compile(r"\s*\},?\s*")
_PAIR = re.compile(r'\s*"([^"]*)"\s*:\s*(.*?),?\s*')


def _by_lines(stdout: str) -> tuple[dict[str, Any], list[str]]:
    """Old releases print one pair a line, with escapes that JSON does not have, bare words (nan, 007, 0x1f) and
    missing commas; lines are sound nevertheless, because line ends in values are escaped."""
    top: dict[str, Any] = {}
    path: list[dict[str, Any]] = [top]
    odd: list[str] = []
    for line in stdout.splitlines()[1:]:
        if not line.strip():
            continue
        opened = _OPENS.fullmatch(line)
        if opened:
            inner: dict[str, Any] = {}
            path[-1][opened[1]] = inner
            path.append(inner)
        elif _CLOSES.fullmatch(line):
            path = path[:-1] or [top]
        elif pair := _PAIR.fullmatch(line):
            path[-1][pair[1]] = _value(pair[2])
        else:
            odd.append(line.strip()[:200])
    return top, odd


def _value(text: str) -> str:
    if not (len(text) >= 2 and text.startswith('"') and text.endswith('"')):
        return text
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]


def by_name(records: Sequence[PrintedRecord]) -> dict[str, PrintedRecord]:
    """Return the records by their names; the last of several wins."""
    return {record.name: record for record in records}


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
    """Read the id that qsub prints. A site's hook may print before it, so the last matching line counts."""
    for line in reversed(stdout.splitlines()):
        if JOB_ID.fullmatch(line.strip()) and "." in line:
            return line.strip()
    return None


def short_id(job_id: str) -> str:
    """Return the number of an id such as "123.server.site"."""
    return job_id.partition(".")[0]


def integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text.strip()) else None


def moment(text: str) -> float | None:
    """Epoch seconds of "Sat Nov 21 08:22:11 2026", printed in UTC (the queries set TZ), or of epoch seconds."""
    if re.fullmatch(r"\d{9,12}", text.strip()):
        return float(text)
    match = _DATE.fullmatch(text.strip())
    if match is None or match[1] not in _MONTHS.split():
        return None
    day, hour, minute, second, year = (int(part) for part in match.groups()[1:])
    return float(calendar.timegm((year, _MONTHS.split().index(match[1]) + 1, day, hour, minute, second, 0, 0, 0)))


def duration(text: str) -> int | None:
    """Seconds of "[[hours:]minutes:]seconds[.fraction]"; None for anything else."""
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d*)?", text.strip())
    if not match:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (hours * 60 + minutes) * 60 + seconds


def size(text: str) -> int | None:
    """Bytes of "24684084kb", "4gb", "100" and the like; words (w) have eight bytes."""
    match = re.fullmatch(r"(\d+)([kmgtp]?)(b|w)?", text.strip().lower())
    return int(match[1]) * _UNITS[match[2]] * (8 if match[3] == "w" else 1) if match else None


def hosts(exec_host: str) -> tuple[str, ...]:
    """Hosts of "n1/0*4+n2/1", each once, in order."""
    names = (part.partition("/")[0].strip("( )") for part in exec_host.split("+"))
    return tuple(dict.fromkeys(name for name in names if name))


def truth(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "t", "y", "yes")


def server_version(records: Sequence[PrintedRecord], fallback: str) -> str:
    """Return the version of the server, for example "23.06.06"."""
    return next((record.get("pbs_version") for record in records if record.get("pbs_version")), fallback)
