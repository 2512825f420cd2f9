"""Parses the output of Slurm's commands. Pure; a line that cannot be parsed is returned as such, never an error.

A random mark separates the fields, a new one for each query. Job names may contain any character, line ends included,
so that a job's owner could forge a fixed separator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from trainmaster.dispatchers.slurm.commands import NODE_FIELDS, OWNER_FIELDS, QUEUE_FIELDS, end_mark
from trainmaster.dispatchers.slurm.messages import REMEMBERED
from trainmaster.dispatchers.slurm.outcomes import SlurmExit

_QUEUE_LENGTHS = (len(QUEUE_FIELDS), len(QUEUE_FIELDS) + len(OWNER_FIELDS))
_QUEUE_HEADING, _NODES_HEADING = "JOBID", "PARTITION"
_FIXED_MARK = "\x1f"
LISTED = 10_000  # jobs whose last line is cached
ABSENT = frozenset({"", "None assigned", "N/A", "None", "(null)", "Unknown", "NONE", "n/a"})


@dataclass(frozen=True)
class QueueLine:
    """One job as squeue prints it. Times are epoch seconds."""

    job_id: str
    state: str
    reason: str
    exit: SlurmExit | None
    derived: SlurmExit | None
    submitted_at: float | None
    started_at: float | None
    ends_at: float | None
    preempted_at: float | None
    restarts: int
    nodes: tuple[str, ...]
    cluster: str
    name: str
    # Only in a listing of all users' jobs.
    user: str = ""
    partition: str = ""
    num_nodes: int = 0
    cpus: int = 0
    gpus: int = 0

    def __hash__(self) -> int:
        """Hash the job id only: cheap for thousands of jobs in each listing, and nearly unique."""
        return hash(self.job_id)


@dataclass(frozen=True)
class Gpus:
    """GPUs of a node or a job. `of_type`: their number by type, as far as types are named."""

    count: int = 0
    of_type: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()  # parts of the text that are about GPUs and have no number that can be read

    def of(self, kind: str | None) -> int:
        """Return the number of GPUs of one type; of all types for None."""
        return self.count if kind is None else self.of_type.get(kind, 0)


@dataclass(frozen=True)
class NodeLine:
    """One node in one partition as sinfo prints it."""

    partition: str
    is_default: bool
    node: str
    state: str
    cpus_used: int
    cpus_total: int
    gpus: Gpus
    gpus_used: int
    max_walltime: int | None
    default_walltime: int | None
    up: bool
    memory_mb: int
    exclusive: bool = False  # the partition gives whole nodes to jobs

    @property
    def gpus_total(self) -> int:
        return self.gpus.count

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(self.gpus.of_type)


def submitted_id(stdout: str) -> tuple[str, str] | None:
    """Return job id and cluster from `sbatch --parsable`; None when there is none. A site's submit plugin may print
    before it, so the last matching line counts."""
    for line in reversed(stdout.splitlines()):
        match = re.fullmatch(r"(\d+)(?:;(\S+))?", line.strip())
        if match:
            return match[1], match[2] or ""
    return None


def cut_queue(stdout: str, mark: str) -> str:
    """Return why this is not the whole answer to our query; empty when it is. An answer to an older query has another
    mark, and squeue prints its heading even when there is no job."""
    return _cut(stdout, f"{end_mark(mark)}\n", _QUEUE_HEADING + mark, mark)


def cut_nodes(stdout: str, mark: str) -> str:
    """Return why the output of sinfo is cut, as `cut_queue`."""
    return _cut(stdout, f"{mark}\n", _NODES_HEADING + mark, mark)


def _cut(stdout: str, end: str, heading: str, mark: str) -> str:
    *whole, rest = f"{stdout}\n".split(end)
    if not any(part.rpartition("\n" + heading)[1] or part.startswith(heading) for part in whole):
        return "its answer has no heading"
    return "its last line is truncated" if mark in rest else ""


def queue(stdout: str, mark: str) -> tuple[list[QueueLine], list[str]]:
    """Jobs of `squeue -O` with `mark` after every field and commands.end_mark after the last, and the lines that are
    no jobs.

    The order of fields is commands.QUEUE_FIELDS, with OWNER_FIELDS before the name where everybody was asked for.
    """
    jobs: list[QueueLine] = []
    odd: list[str] = []
    for text in f"{stdout}\n".split(end_mark(mark) + "\n"):
        # The cache needs a fixed mark and its count: a job's name, which comes last, may contain that mark too.
        job, lines = _record(text.replace(mark, _FIXED_MARK), text.count(mark))
        odd += lines
        if job is not None:
            jobs.append(job)
    return jobs, odd


@lru_cache(LISTED)
def _record(text: str, marks: int) -> tuple[QueueLine | None, Sequence[str]]:
    """Parse one record: its job, and lines that are not part of it. Cached, because most of thousands of waiting jobs
    are printed as in the last listing."""
    if not text.strip():
        return None, ()
    fields = text.split(_FIXED_MARK, marks)
    # A banner of the login shell comes before the first record, on lines of its own.
    lead, _, job_id = fields[0].rpartition("\n")
    odd = tuple(line for line in lead.splitlines() if line.strip())
    if job_id == _QUEUE_HEADING and len(fields) in _QUEUE_LENGTHS:
        return None, odd
    if len(fields) not in _QUEUE_LENGTHS or not re.fullmatch(r"\d+(_\S+|\+\d+)?", job_id):
        return None, (*odd, text.strip()[:200])
    return _queue_line(job_id, *fields[1:]), odd


def _queue_line(job_id: str, *fields: str) -> QueueLine:
    state, reason, status, derived, submit, start, end, preempt, restarts, nodes, cluster, *owner, name = fields
    user, partition, num_nodes, cpus, *tres = owner or [""] * len(OWNER_FIELDS)
    return QueueLine(
        job_id=job_id,
        state=state,
        reason="" if reason in ABSENT else reason,
        exit=SlurmExit.parse(status),
        derived=SlurmExit.parse(derived),
        submitted_at=epoch(submit),
        started_at=epoch(start),
        ends_at=epoch(end),
        preempted_at=epoch(preempt),
        restarts=int(restarts) if restarts.isdigit() else 0,
        nodes=expand_hosts(nodes),
        cluster="" if cluster in ABSENT else cluster,
        user=user,
        partition=partition,
        num_nodes=int(num_nodes) if num_nodes.isdigit() else 0,
        cpus=int(cpus) if cpus.isdigit() else 0,
        gpus=job_gpus(*tres, nodes=int(num_nodes) if num_nodes.isdigit() else 0),
        name=name,
    )


@lru_cache(REMEMBERED)
def epoch(text: str) -> float | None:
    """Return epoch seconds as printed under SLURM_TIME_FORMAT=%s; None for "N/A" and zero."""
    return float(text) if re.fullmatch(r"\d{1,12}", text) and int(text) > 0 else None


def duration(text: str) -> int | None:
    """Slurm's "[days-][[hours:]minutes:]seconds" in seconds; None for no limit and for anything else."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@lru_cache(REMEMBERED)
def expand_hosts(text: str) -> tuple[str, ...]:
    """Expand "n[1-3,07],gpu4" into host names. A part that cannot be parsed stays as it is."""
    if text in ABSENT:
        return ()
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)
    return tuple(host for part in parts for host in _expand_one(part))


def _expand_one(part: str) -> list[str]:
    match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
    if not match:
        return [part]
    head, ranges, tail = match.groups()
    hosts: list[str] = []
    for span in ranges.split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", span)
        if not ends:
            return [part]
        first, last = ends[1], ends[2] or ends[1]
        if int(last) - int(first) > 100_000:
            return [part]
        for number in range(int(first), int(last) + 1):
            hosts += _expand_one(f"{head}{number:0{len(first)}d}{tail}")
    return hosts


def gpus(text: str) -> tuple[int, tuple[str, ...]]:
    """Return number and types of GPUs in a Gres text such as "gpu:a100:4(S:0-1),gpu:2,shard:8"."""
    request = read_gpus(text)
    return request.count, tuple(request.of_type)


@lru_cache(REMEMBERED)
def read_gpus(text: str) -> Gpus:
    """Read a Gres or TRES text: "gpu:2080ti:4(S:0-1),gpu:2,shard:8", "gres/gpu:a100=2". Any text between the colons is
    a type, also one that begins with a digit. A total beside typed numbers, as in "gres/gpu=4,gres/gpu:a100=4", counts
    them again."""
    of_type: dict[str, int] = {}
    untyped = total = 0
    unread: list[str] = []
    for part in re.findall(r"(?:[^,(]|\([^)]*\)?)+", text):
        name = re.match(r"\s*(?:gres[:/])?gpu(?![A-Za-z0-9_.-])", part, re.IGNORECASE)
        if name is None:
            continue
        kind, number = _typed_count(part[name.end() :].strip())
        if number is None:
            unread.append(part.strip()[:100])
        elif kind:
            of_type[kind] = of_type.get(kind, 0) + number
        elif part[name.end() :].startswith("="):
            total += number
        else:
            untyped += number
    return Gpus(max(total, untyped + sum(of_type.values())), of_type, tuple(unread))


def _typed_count(text: str) -> tuple[str, int | None]:
    """Read what comes after the name: ":a100:4(S:0-1)", ":4", "=2", ":a100=2", or a type alone, which is one GPU, as
    for sbatch. None: there is no number."""
    plain = re.sub(r"\((?!null\))[^)]*\)?", "", text).replace("=", ":").strip()
    words = [word.strip() for word in plain.split(":") if word.strip() not in ("", "no_consume", "(null)")]
    if not words:
        return "", None if plain else 1
    if words[-1].isdecimal():
        return ":".join(words[:-1]), int(words[-1])
    return (words[0], 1) if len(words) == 1 else ("", None)


@lru_cache(REMEMBERED)
def job_gpus(allocated: str, per_job: str, per_node: str, *, nodes: int) -> int:
    """Return the GPUs of a job: from "cpu=4,node=1,gres/gpu=2" if the site tracks them, all or some types, else as
    requested: "gres:gpu:2"."""
    given, wanted, each = (read_gpus(text).count for text in (allocated, per_job, per_node))
    return given or wanted or each * nodes


def nodes(stdout: str, mark: str) -> tuple[list[NodeLine], list[str]]:
    """Nodes of `sinfo -N -O` with `mark` after every field (commands.NODE_FIELDS), and lines that are none."""
    nodes: list[NodeLine] = []
    odd: list[str] = []
    for line in stdout.splitlines():
        fields = line.split(mark)
        if fields[0] == _NODES_HEADING:
            continue
        if len(fields) != len(NODE_FIELDS) + 1 or not re.fullmatch(r"\d+/\d+/\d+/\d+", fields[3]):
            if line.strip():
                odd.append(line.strip()[:200])
            continue
        partition, node, state, cpus, gres, gres_used, limit, default, available, memory, oversubscribe, _ = fields
        used, _idle, _other, total = (int(number) for number in cpus.split("/"))
        nodes.append(
            NodeLine(
                partition=partition.rstrip("*"),
                is_default=partition.endswith("*"),
                node=node,
                # "*": it does not respond, and gets no jobs.
                state="not responding" if state.endswith("*") else state.rstrip("~#!%$@^-"),
                cpus_used=used,
                cpus_total=total,
                gpus=read_gpus(gres),
                gpus_used=gpus(gres_used)[0],
                max_walltime=duration(limit),
                default_walltime=duration(default),
                up=available == "up",
                memory_mb=int(memory) if memory.isdigit() else 0,
                exclusive=oversubscribe == "EXCLUSIVE",
            )
        )
    return nodes, odd


def key_values(text: str) -> dict[str, str]:
    """Pairs of `scontrol show job -o`. Values with blanks (names, comments) keep only their first word; nothing
    that is decided on has one."""
    return dict(re.findall(r"(?:^|\s)([A-Za-z][A-Za-z0-9:/_]*)=(\S*)", text))


def configuration(stdout: str) -> dict[str, str]:
    """`scontrol show config` as names and values."""
    pairs = (line.partition("=") for line in stdout.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def accounting(stdout: str, token: str) -> dict[str, str] | None:
    """Return the newest allocation of `sacct -X -P -n -o` with commands.ACCOUNT_FIELDS that bears `token`; None when
    there is none. Job ids start again when a cluster loses its state, so that one id may stand for several jobs."""
    rows = [line.split("|", len(_ACCOUNT_KEYS)) for line in stdout.splitlines()]
    ours = [row for row in rows if len(row) == len(_ACCOUNT_KEYS) + 1 and row[-1] == token]
    return dict(zip(_ACCOUNT_KEYS, ours[-1][:-1], strict=True)) if ours else None


_ACCOUNT_KEYS = ("job_id", "state", "exit", "derived", "reason", "nodes")


ROOT = 0


@dataclass(frozen=True)
class SlurmController:
    """`started_at`: when slurmctld was started last, epoch seconds by its clock; None: not known. `accounts`: uids
    under which Slurm itself cancels jobs, beside persons who act as root."""

    started_at: float | None
    accounts: frozenset[int]

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> SlurmController:
        """From `scontrol show config` under SLURM_TIME_FORMAT=%s: "BOOT_TIME = 1795242711", "SlurmUser = root(0)"."""
        printed = (configuration.get(name, "") for name in ("SlurmUser", "SlurmdUser"))
        uids = (re.search(r"\((\d+)\)", text) for text in printed)
        accounts = frozenset({ROOT, *(int(match[1]) for match in uids if match)})
        return cls(epoch(configuration.get("BOOT_TIME", "")), accounts)
