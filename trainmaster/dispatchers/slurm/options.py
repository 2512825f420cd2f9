"""The options of Slurm: the administrator's section of the master's configuration, and users' `slurm.sbatch_args`.

Users' arguments pass a typed allow-list: every argument is read as sbatch would read it, checked, and rebuilt as
`--key=value`, so that the user's own spelling never reaches the command. sbatch accepts any unique beginning of a long
option (`--part=x`), so a list of forbidden prefixes would not hold: a name that is not exactly on the list is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from trainmaster.config.shapes import AbsolutePath
from trainmaster.dispatchers.batch.options import BatchOptions, CommandPaths
from trainmaster.dispatchers.batch.requests import MAIL_ADDRESSES, ArgumentKind, BadOption, split
from trainmaster.dispatchers.slurm.commands import SlurmPrograms
from trainmaster.dispatchers.slurm.parse import duration
from trainmaster.dispatchers.slurm.resources import GPU_TYPE, GpuDialect


class SlurmCommands(CommandPaths):
    sbatch: AbsolutePath | None = None
    squeue: AbsolutePath | None = None
    scancel: AbsolutePath | None = None
    sinfo: AbsolutePath | None = None
    sacct: AbsolutePath | None = None
    scontrol: AbsolutePath | None = None


class SlurmOptions(BatchOptions):
    """Options of a Slurm cluster. Times are seconds."""

    scheduler: ClassVar[str] = "Slurm"
    inherited: ClassVar[tuple[str, ...]] = ("SLURM_CONF",)

    commands: SlurmCommands = SlurmCommands()
    reader: Literal["auto", "commands", "pyslurm"] = "commands"
    """How jobs are listed: by squeue, or by pyslurm, if one is installed that fits the cluster's release."""
    # sbatch itself tries for 120 s when the queue is full; ending it earlier would leave its outcome unknown.
    submit_deadline: float = Field(default=150.0, ge=150.0)

    def notes(self) -> Iterator[tuple[str, str]]:
        if self.tres_supported and not self.gres_supported:
            yield "gres_supported", "false makes tres_supported false too"

    def programs(self) -> SlurmPrograms:
        """Return Slurm's commands, searched on the master's own PATH and on that of jobs."""
        return SlurmPrograms(
            **self.commands.found(None if self.ssh else f"{os.environ.get('PATH', '')}:{self.job_path}")
        )

    def dialect(self, partition: str) -> GpuDialect:
        """Return how GPUs are requested in a partition."""
        own = self.pool(partition).tres_supported
        # GPU counts can only be tracked where generic resources are configured at all.
        tres = self.tres_supported and self.gres_supported if own is None else own
        return GpuDialect.of(tres_supported=tres, gres_supported=self.knows_gpus(partition))


# Only values that the master computes with have a form of their own; sbatch judges all others, and its sentence is
# shown. The excluded characters never reach a site's own submit plugin, which may be a shell script.
VALUE = ArgumentKind(r"[^\x00-\x1f\x7f`$;<>\"']{1,1024}", "text without quotes, `, $, ;, < and >")
LEVEL = replace(VALUE, optional=True)
COUNT = ArgumentKind(r"[1-9]\d{0,8}", "a whole number above 0")
SIZE = ArgumentKind(r"\d[A-Za-z0-9.]{0,31}", "a size such as 4000M or 64GB")
# sbatch reads a list with a slash as the name of a file.
HOSTS = ArgumentKind(r"[A-Za-z0-9_.,\[\]-]{1,4096}", "node names such as n1,n[3-5]")
DURATION = ArgumentKind(r"(?i:\d[\d:-]{0,31}|-1|unlimited|infinite)", "a time such as 90, 1:30:00 or 2-12:00:00")
GRES = ArgumentKind(r"[^\x00-\x20\x7f`$;<>\"']{0,1024}", "generic resources such as shard:2", optional=True)
_GPUS = rf"({GPU_TYPE}:)?[1-9]\d{{0,5}}"
PER_GPU = ArgumentKind(rf"{_GPUS}(,{_GPUS})*", "a number, or type:number")
FLAG = ArgumentKind(r"", "no value", optional=True)
TEXT = ArgumentKind(r"[^\x00-\x1f\x7f]{1,256}", "text on one line")

ALLOWED: Mapping[str, ArgumentKind] = {
    "account": VALUE,
    "acctg-freq": VALUE,
    "begin": VALUE,
    "cluster-constraint": VALUE,
    "comment": TEXT,
    "constraint": VALUE,
    "contiguous": FLAG,
    "core-spec": VALUE,
    "cores-per-socket": VALUE,
    "cpu-freq": VALUE,
    "cpus-per-gpu": VALUE,
    "cpus-per-task": COUNT,
    "deadline": VALUE,
    "exclude": HOSTS,
    "exclusive": LEVEL,
    "gpu-bind": VALUE,
    "gpu-freq": VALUE,
    "gpus-per-socket": PER_GPU,
    "gpus-per-task": PER_GPU,
    "gres": GRES,
    "gres-flags": VALUE,
    "hint": VALUE,
    "licenses": VALUE,
    "mail-type": VALUE,
    "mail-user": MAIL_ADDRESSES,
    "mem": SIZE,
    "mem-bind": VALUE,
    "mem-per-cpu": SIZE,
    "mem-per-gpu": SIZE,
    "mincpus": VALUE,
    "network": VALUE,
    "nice": LEVEL,
    "nodelist": HOSTS,
    "overcommit": FLAG,
    "oversubscribe": FLAG,
    "power": VALUE,
    "priority": VALUE,
    "profile": VALUE,
    "qos": VALUE,
    "reservation": VALUE,
    "sockets-per-node": VALUE,
    "spread-job": FLAG,
    "switches": VALUE,
    "thread-spec": VALUE,
    "threads-per-core": VALUE,
    "time": DURATION,
    "time-min": DURATION,
    "tmp": SIZE,
    "use-min-nodes": FLAG,
    "verbose": FLAG,
    # The job name belongs to the master, so a user's own name goes into the comment.
    "job-name": TEXT,
}
SHORT: Mapping[str, str] = {
    "A": "account",
    "b": "begin",
    "B": "extra-node-info",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "n": "ntasks",
    "O": "overcommit",
    "o": "output",
    "p": "partition",
    "Q": "quiet",
    "q": "qos",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
    "a": "array",
    "h": "help",
    "V": "version",
}
# Set by trainmaster, or harmful in a job that the master follows. Listed for the message; an option on neither list is
# refused as unknown.
RESERVED = frozenset(
    {
        "array", "batch", "bb", "bbf", "chdir", "clusters", "container", "delay-boot", "dependency", "error",
        "export", "export-file", "extra", "extra-node-info", "get-user-env", "gid", "gpus", "gpus-per-node",
        "help", "hold", "ignore-pbs", "input", "kill-on-invalid-dep", "no-kill", "no-requeue", "nodefile",
        "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket",
        "open-mode", "output", "parsable", "partition", "propagate", "quiet", "reboot", "requeue", "signal",
        "test-only", "uid", "usage", "version", "wait", "wait-all-nodes", "wckey", "wrap", "admin-comment",
        "prefer", "tres-per-task", "mcs-label",
    }
)  # fmt: skip
_SILENT = frozenset({"verbose"})  # accepted and dropped: they would only change what sbatch prints


def check(arguments: Sequence[str]) -> dict[str, str | None]:
    """Return canonical options of the user's `sbatch_args`, each with its checked value (None: a flag).

    The last of several wins, as with sbatch, but generic resources and excluded nodes add up. Raises BadOption.
    """
    options: dict[str, str | None] = {}
    for argument in arguments:
        for key, value in _read(argument):
            checked = _check(key, value)
            if key in _SILENT or (key == "gres" and not checked):
                continue
            if key == "job-name":
                options["comment"] = checked
            elif key in ("gres", "exclude") and options.get(key):
                options[key] = f"{options[key]},{checked}"
            else:
                options[key] = checked
    return options


def walltime(options: Mapping[str, str | None], default: int | None = None) -> int | None:
    """Return the requested time limit in seconds, `default` if none is requested; None without a limit, and for a text
    that only sbatch can judge."""
    text = options.get("time")
    return default if text is None else _seconds(text)


def shortest_walltime(options: Mapping[str, str | None], default: int | None) -> int | None:
    """Return the limit that a job may get at worst: Slurm lowers it to `--time-min` to start the job sooner."""
    least, limit = options.get("time-min"), walltime(options, default)
    return min(filter(None, (limit, _seconds(least) if least else None)), default=None)


def _seconds(text: str) -> int | None:
    """Return seconds of a time as sbatch reads it; None for no limit, and where only sbatch can judge."""
    if re.fullmatch(r"\d+", text):
        return int(text) * 60 or None  # 0 is no limit
    if match := re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?", text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return duration(text)


def _read(argument: str) -> list[tuple[str, str | None]]:
    """Parse one entry of the list into keys and raw values."""
    words = split(argument, "slurm")
    pairs: list[tuple[str, str | None]] = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            _refuse_unknown(key, f"--{key}")
            given = value if equals else None
        elif word.startswith("-") and len(word) > 1:
            if word[1] not in SHORT:
                raise BadOption(f"slurm option {word[:2]} is not known")
            key = SHORT[word[1]]
            _refuse_unknown(key, word[:2])
            given = word[2:].removeprefix("=") or None
        else:
            raise BadOption(f"slurm option {word!r} does not begin with '-'")
        if given is None and words and not ALLOWED[key].optional:
            given = words.pop(0)
        pairs.append((key, given))
    return pairs


def _refuse_unknown(key: str, spelled: str) -> None:
    if key in ALLOWED:
        return
    if key in RESERVED:
        raise BadOption(f"slurm option {spelled} is not configurable{_INSTEAD.get(key, '')}")
    longer = sorted(name for name in {*ALLOWED, *RESERVED} if key and name.startswith(key))
    if longer:
        raise BadOption(f"slurm option {spelled} is shortened; write it out: --{longer[0]}")
    raise BadOption(f"slurm option {spelled} is not configurable: it is not on the list of known options")


_INSTEAD = {
    "nodes": "; set resources.slots_per_trial and slurm.slots_per_node",
    "ntasks": "; set resources.slots_per_trial and slurm.slots_per_node",
    "gpus": "; set resources.slots_per_trial and slurm.gpu_type",
    "gpus-per-node": "; set slurm.slots_per_node and slurm.gpu_type",
    "partition": "; set resources.resource_pool",
    "wckey": "; the administrator's job_project_source sets it",
    "requeue": "; set max_restarts",
    "array": "; the searcher decides how many jobs there are",
}


def _check(key: str, value: str | None) -> str | None:
    kind = ALLOWED[key]
    if value is None or (value == "" and kind.optional):
        if not kind.optional:
            raise BadOption(f"slurm option --{key} needs a value: {kind.words}")
        return None
    if kind is FLAG:
        raise BadOption(f"slurm option --{key} takes no value, not {value!r}")
    if not re.fullmatch(kind.pattern, value):
        raise BadOption(f"slurm option --{key} takes {kind.words}, not {value!r}")
    if value == "help" and kind is not TEXT:
        raise BadOption(f"slurm option --{key}=help submits nothing; see sbatch(1) for its values")
    extra = _EXTRA.get(key)
    return extra(value) if extra else value


def _check_gres(value: str) -> str:
    parts = [part for part in value.split(",") if part]
    for part in parts:
        if re.match(r"(gres[:/])?(gpu|mps)(?![\w-])", part, re.IGNORECASE):
            raise BadOption(
                "slurm option --gres may not ask for GPUs; set resources.slots_per_trial and slurm.gpu_type"
            )
    return ",".join(parts)


_EXTRA: Mapping[str, Callable[[str], str]] = {"gres": _check_gres}
