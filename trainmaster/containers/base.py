"""What every container runtime does: the contract of plugins under the entry-point group `trainmaster.containers`.

A plugin is announced by the name that `container_run_type` uses: a class that takes the full path of the runtime's
program (None: PATH on the nodes says where it is) and fulfils `ContainerRuntime`, which is checked when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

NODE_DIR = "/run/determined"  # the run folder in a container: Determined's harness looks there for info/*.json
_RUN = (
    "import sys, zipimport; sys.path[0] = sys.argv.pop(1); "
    'exec(zipimport.zipimporter(sys.path[0]).get_code("__main__"))'
)


class CannotStart(ValueError):
    """A job asks for what its container runtime cannot do; the message says what, and what to do."""


@dataclass(frozen=True)
class Bind:
    """A folder or file of the node that the container sees."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True)
class Device:
    """A device of the host in the container; `mode` is of r, w and m."""

    host_path: str
    container_path: str
    mode: str = "rwm"


@dataclass(frozen=True)
class ContainerStart:
    """The start of one node's process.

    `variables` reach the process with exactly these values. `scratch` are folders on the node in which a private
    folder for temporary files is tried first; $SLURM_TMPDIR, $TMPDIR and /tmp follow.
    """

    job_folder: Path
    image: str = ""
    fresh: bool = False  # an image that is fetched is fetched anew, whatever is kept of it
    binds: Sequence[Bind] = ()
    gpus: bool = False  # give it the GPUs that the scheduler gave the job, and the host's CUDA libraries
    rocm: bool = False
    python: str = "python3"
    scratch: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    shm_size: int | None = None  # bytes of /dev/shm, for runtimes that heed it
    devices: Sequence[Device] = ()  # for runtimes that heed them

    @property
    def process(self) -> tuple[str, ...]:
        """The words that run the runtime."""
        return (self.python, *runtime_arguments(self.job_folder))


def runtime_arguments(job_folder: Path, before: str = "") -> tuple[str, ...]:
    """What Python is told to run the runtime of the job in `job_folder`: `-S`, because it needs nothing that an image
    has installed, and what images make Python import at every start would cost every job; `_RUN`, because Python's own
    way to run a zip (runpy) costs 4 ms more. `before`: Python code that comes first."""
    return ("-S", "-c", before + _RUN, str(job_folder / "runtime.zip"), str(job_folder))


@dataclass(frozen=True)
class Cause:
    """Why a container, or the Python in it, did not start."""

    text: str  # a sentence without a full stop: the cause, then what was printed
    final: bool = False  # no other attempt would go better


class ContainerRuntime(Protocol):
    """One way to wrap a process.

    `program`: what it runs on the nodes; empty: nothing. `heeds`: what it does of what jobs ask for beside image and
    mounts: "shm_size", "devices". `scheduler`: the only one under which it works, by the name in sentences; empty: any.
    """

    name: str
    program: str
    heeds: ClassVar[frozenset[str]] = frozenset()
    scheduler: ClassVar[str] = ""

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        """What the runtime's program is given for `image`. `root`: the site's folder of images (`containers.images`);
        `fresh`: it is to be fetched again, whatever lies there."""

    def check(self, image: str) -> Sequence[str]:
        """Sentences that say why the resolved `image` cannot be run here; empty when nothing speaks against it."""

    def start_script(self, start: ContainerStart) -> str:
        """The text of `start.sh`. Raises templates.ControlCharacter, CannotStart."""

    def explain(self, output: str) -> Cause | None:
        """Why the process did not start, by what `start.sh` printed; None when that does not say it."""
