"""The options of PBS: the administrator's section of the master's configuration, and users' `pbs.pbsbatch_args`.

Users' arguments pass a typed allow-list: every argument is read as qsub's getopt would read it, checked, and rebuilt,
so that the user's own spelling never reaches the command. Determined allowed -A -a -f -l -m -M -N -p -P and refused the
rest; so do we. Of these, -f is given always, and -N is read and left out: the job's name is the token by which the
master finds its jobs again.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from trainmaster.config.shapes import AbsolutePath, Line, one_of, wrong
from trainmaster.dispatchers.batch.options import BatchOptions, CommandPaths
from trainmaster.dispatchers.batch.requests import MAIL_ADDRESSES, ArgumentKind, BadOption, split
from trainmaster.dispatchers.pbs.commands import PbsPrograms
from trainmaster.dispatchers.pbs.parse import Format, duration
from trainmaster.dispatchers.pbs.resources import JOB_WIDE, PER_CHUNK

_USUAL_BIN = "/opt/pbs/bin"
_RESOURCE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def _resource_name(value: str) -> str:
    if not _RESOURCE_NAME.fullmatch(value):
        raise wrong(f"must be the name of a PBS resource such as ngpus, found {value!r}")
    return value


class HostStart(enum.StrEnum):
    """How a job's script starts processes on its other hosts."""

    AUTO = "auto"  # the first of the following that works there
    TMRSH = "pbs_tmrsh"
    PBSDSH = "pbsdsh"
    SSH = "ssh"


class NodePlacement(enum.StrEnum):
    """How PBS places the nodes of a trial."""

    SCATTER = "scatter"  # each on a host of its own
    VSCATTER = "vscatter"  # each on a virtual node of its own
    FREE = "free"  # anywhere


class PbsCommands(CommandPaths):
    qsub: AbsolutePath | None = None
    qstat: AbsolutePath | None = None
    qselect: AbsolutePath | None = None
    qdel: AbsolutePath | None = None
    qsig: AbsolutePath | None = None
    pbsnodes: AbsolutePath | None = None


class PbsOptions(BatchOptions):
    """Options of a PBS cluster: OpenPBS or PBS Pro. A partition is a queue. Times are seconds."""

    scheduler: ClassVar[str] = "PBS"
    # Variables that name the server to PBS's commands.
    inherited: ClassVar[tuple[str, ...]] = ("PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC")

    commands: PbsCommands = PbsCommands()
    gpu_resource: Annotated[Line, AfterValidator(_resource_name)] = "ngpus"
    """The resource that counts a node's GPUs; sites choose its name."""
    place: Annotated[NodePlacement, one_of(NodePlacement)] = NodePlacement.SCATTER
    """How the nodes of a trial are placed."""
    host_start: Annotated[HostStart, one_of(HostStart)] = HostStart.AUTO
    """How a job starts processes on its other hosts; without it, the first way that works there."""
    query_format: Annotated[Format, one_of(Format)] = Format.DSV
    """Output format of qstat. Only dsv cannot be forged by the owner of a job."""
    ended_listed_for: float = Field(default=600.0, ge=60)
    """Seconds for which ended jobs are still queried."""

    def programs(self) -> PbsPrograms:
        """Return PBS's commands, searched on the master's own PATH, on that of jobs, and in PBS's usual folder."""
        here = f"{os.environ.get('PATH', '')}:{self.job_path}:{self.pbs_bin}"
        return PbsPrograms(**self.commands.found(None if self.ssh else here))

    @property
    def command_path(self) -> str:
        """PATH of PBS's commands."""
        return f"{self.job_path}:{self.pbs_bin}"

    @property
    def pbs_bin(self) -> str:
        """The folder of PBS's commands, from pbs.conf; for a cluster on another machine the usual one."""
        environment = self.client_environment
        if "PBS_EXEC" in environment:
            return f"{environment['PBS_EXEC']}/bin"
        if self.ssh:
            return _USUAL_BIN
        try:
            text = Path(environment.get("PBS_CONF_FILE", "/etc/pbs.conf")).read_text()
        except (OSError, UnicodeDecodeError):
            return _USUAL_BIN
        match = re.search(r"^\s*PBS_EXEC\s*=\s*(\S+)", text, re.MULTILINE)
        return f"{match[1]}/bin" if match else _USUAL_BIN


_NAME = r"[^\x00-\x1f\x7f`$;<>\"'|&]"  # what never reaches a site's hook, which may be a shell script

ALLOWED: Mapping[str, ArgumentKind] = {
    "A": ArgumentKind(rf"{_NAME}{{1,128}}", "an account's name"),
    "a": ArgumentKind(
        r"(?:\d{2}){4,6}(?:\.\d{2})?|\d{4}(?:\.\d{2})?", "a moment such as 203001311200 ([[CC]YY]MMDDhhmm[.SS])"
    ),
    "m": ArgumentKind(r"n|[abej]{1,4}", "n, or letters of a, b, e and j"),
    "M": MAIL_ADDRESSES,
    "N": ArgumentKind(r"[A-Za-z0-9_.+-]{1,230}", "a name"),
    "p": ArgumentKind(r"[+-]?\d{1,4}", "a whole number from -1024 to 1023"),
    "P": ArgumentKind(rf"{_NAME}{{1,128}}", "a project's name"),
}
# qsub's other options: set by trainmaster, or harmful in a job that the master follows.
RESERVED = frozenset("cCeGhIjJkoqrRSuvVWXz")
_INSTEAD = {
    "q": "; set resources.resource_pool",
    "J": "; the searcher decides how many jobs there are",
    "r": "; set max_restarts",
    "v": "; set environment.environment_variables",
    "V": "; set environment.environment_variables",
}
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# qsub takes quoted strings with more in them; a resource's value has never needed it.
_VALUE = re.compile(r"[^\x00-\x20\x7f`$;<>\"'|&,]{1,1024}")
_CHUNK_VALUE = re.compile(r"[^\x00-\x20\x7f`$;<>\"'|&,:+=]{1,1024}")
_SHARING = ("excl", "exclhost", "shared")
# qsub judges how sizes and times are written; these are for what can be neither.
_SIZE = re.compile(r"\d[A-Za-z0-9.]{0,31}")
_TIME = re.compile(r"\d[\d:.-]{0,31}")
_SIZES = ("mem", "vmem", "pmem", "pvmem", "hbmem", "file")
_TIMES = ("walltime", "min_walltime", "max_walltime", "soft_walltime", "cput", "pcput")


@dataclass
class CheckedOptions:
    """The user's options, checked. `chunks` is the number of nodes that a select statement named."""

    options: dict[str, str] = field(default_factory=dict)  # qsub's letters
    resources: dict[str, str] = field(default_factory=dict)  # of the whole job
    per_node: dict[str, str] = field(default_factory=dict)  # of every chunk
    place: list[str] = field(default_factory=list)
    chunks: int | None = None

    @property
    def walltime(self) -> int | None:
        """The requested time limit in seconds; None without one."""
        return duration(self.resources.get("walltime", ""))

    @property
    def shortest_walltime(self) -> int | None:
        """The minimal time limit in seconds of a shrink-to-fit job; None for every other job."""
        return duration(self.resources.get("min_walltime", ""))


def check(arguments: Sequence[str], gpu_resource: str = "ngpus") -> CheckedOptions:
    """Read the user's `pbsbatch_args`; the last of several wins, as with qsub. Raises BadOption."""
    given = CheckedOptions()
    for argument in arguments:
        for letter, value in _read(argument):
            if letter == "f":
                continue
            if letter == "l":
                _resources(value, given, gpu_resource)
                continue
            kind = ALLOWED[letter]
            if not re.fullmatch(kind.pattern, value):
                raise BadOption(f"PBS option -{letter} takes {kind.words}, not {value!r}")
            if letter == "p" and not -1024 <= int(value) <= 1023:
                raise BadOption(f"PBS option -p takes {kind.words}, not {value!r}")
            if letter != "N":
                given.options[letter] = value
    return given


def _read(argument: str) -> list[tuple[str, str]]:
    """One entry of the list as letters and values, as getopt(3) takes it apart."""
    words = split(argument, "PBS")
    pairs: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if word.startswith("--") or word == "-":
            raise BadOption(f"PBS option {word} is not configurable")
        if not word.startswith("-"):
            raise BadOption(f"PBS option {word!r} does not begin with '-'")
        letter, rest = word[1], word[2:]
        if letter in RESERVED:
            raise BadOption(f"PBS option -{letter} is not configurable{_INSTEAD.get(letter, '')}")
        if letter == "f":
            if rest:
                words.insert(0, f"-{rest}")  # getopt reads -fz as -f -z
            pairs.append(("f", ""))
            continue
        if letter != "l" and letter not in ALLOWED:
            raise BadOption(f"PBS option -{letter} is not configurable: it is not on the list of known options")
        if not rest and not words:
            raise BadOption(f"PBS option -{letter} needs a value")
        pairs.append((letter, rest or words.pop(0)))
    return pairs


def _resources(text: str, given: CheckedOptions, gpu_resource: str) -> None:
    """One `-l` list: select=..., place=..., or resources separated by commas."""
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not _RESOURCE.fullmatch(name) or not equals or not value:
            raise BadOption(f"PBS option -l takes resources such as walltime=1:00:00, not {part!r}")
        if name == "select":
            _select(value, given, gpu_resource)
        elif name == "place":
            _place(value, given)
        elif name == "nodes":
            raise BadOption(
                "PBS option -l nodes is obsolete; set resources.slots_per_trial and pbs.slots_per_node, and what every "
                "node needs in -l select=ncpus=...:mem=..."
            )
        elif name in PER_CHUNK or name in (gpu_resource, "mpiprocs"):
            _of_chunk(name, value, given, gpu_resource)
        else:
            _of_job(name, value, given)


def _of_job(name: str, value: str, given: CheckedOptions) -> None:
    if not _VALUE.fullmatch(value):
        raise BadOption(f"PBS resource {name} has a value with characters that are not taken: {value!r}")
    if name in _SIZES and not _SIZE.fullmatch(value):
        raise BadOption(f"PBS resource {name} takes a size such as 4gb, not {value!r}")
    if name in _TIMES and not _TIME.fullmatch(value):
        raise BadOption(f"PBS resource {name} takes a time such as 3600 or 1:30:00, not {value!r}")
    given.resources[name] = value


def _select(text: str, given: CheckedOptions, gpu_resource: str) -> None:
    """`[N:]name=value:...`: what every node gets beside its slots."""
    if "+" in text:
        raise BadOption("PBS option -l select may describe one kind of node only: all nodes of a trial are alike")
    first, *others = text.split(":")
    if first.isdigit():
        given.chunks = int(first)
    else:
        others = [first, *others]
    for part in others:
        name, equals, value = part.partition("=")
        if not _RESOURCE.fullmatch(name) or not equals:
            raise BadOption(f"PBS option -l select takes resources such as ncpus=8, not {part!r}")
        _of_chunk(name, value, given, gpu_resource)


def _of_chunk(name: str, value: str, given: CheckedOptions, gpu_resource: str) -> None:
    if name == gpu_resource:
        raise BadOption(
            f"PBS resource {name} is not configurable; set resources.slots_per_trial and pbs.slots_per_node"
        )
    if name == "mpiprocs":
        raise BadOption("PBS resource mpiprocs is not configurable: one process starts the workers of each node")
    if name in JOB_WIDE:
        raise BadOption(f"PBS resource {name} is one of the whole job; write it as -l {name}={value}")
    if name in ("ncpus", "ompthreads") and not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise BadOption(f"PBS resource {name} takes a whole number above 0, not {value!r}")
    if name in _SIZES and not _SIZE.fullmatch(value):
        raise BadOption(f"PBS resource {name} takes a size such as 4gb, not {value!r}")
    if not _CHUNK_VALUE.fullmatch(value):
        raise BadOption(f"PBS resource {name} has a value with characters that are not taken: {value!r}")
    given.per_node[name] = value


def _place(text: str, given: CheckedOptions) -> None:
    """`excl`, `exclhost`, `shared` and `group=NAME`; trainmaster itself sets the placement of nodes."""
    for part in text.split(":"):
        if part == "scatter":
            continue
        if part in _SHARING:
            given.place = [word for word in given.place if word not in _SHARING] + [part]
        elif re.fullmatch(r"group=[A-Za-z][A-Za-z0-9_-]{0,63}", part):
            given.place = [word for word in given.place if not word.startswith("group=")] + [part]
        else:
            raise BadOption(
                f"PBS option -l place takes scatter, excl, exclhost, shared and group=NAME, not {part!r}: every node "
                "of a trial is a host of its own"
            )
