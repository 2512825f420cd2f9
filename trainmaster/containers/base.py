"""The container runtime contract, for plugins under the entry-point group `trainmaster.containers`.

A plugin is announced by the name that `container_run_type` uses: a class that takes the full path of the runtime's
program (None: it is found on PATH on the nodes) and fulfils `ContainerRuntime`, which is checked when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from trainmaster import plugins

NODE_DIR = "/run/determined"  # the run folder in a container: Determined's harness looks there for info/*.json
DAMAGED_RUNTIME = "the runtime is not what its name says, or missing: "
# A link leads to .../SHA256/runtime.zip, which other jobs use too; the link lies in the job's own folder.
_RUN = (
    "import os, sys, zipimport; path = sys.path[0] = sys.argv.pop(1); "
    "link = os.readlink(path).split('/') if os.path.islink(path) else (); "
    "link and (os.path.isfile(path) and __import__('hashlib').sha256(open(path, 'rb').read()).hexdigest() == link[-2] "
    f"or print('trainmaster: {DAMAGED_RUNTIME}' + path, file=sys.stderr) or sys.exit(75)); "
    "exec(zipimport.zipimporter(path).get_code('__main__'))"
)


SHARED_FILES = "shared_files"


class CannotStart(ValueError):
    """A job asks for something that its container runtime cannot do; the message says what, and how to fix it."""


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
    fresh: bool = False  # pull the image again, even if a copy is cached
    binds: Sequence[Bind] = ()
    gpus: bool = False  # give it the GPUs that the scheduler gave the job, and the host's CUDA libraries
    rocm: bool = False
    python: str = "python3"
    scratch: Sequence[str] = ()
    shared: Sequence[Path] = ()  # folders beside the job folder that links in it lead to, where they exist; read-only
    variables: Mapping[str, str] = field(default_factory=dict)
    shm_size: int | None = None  # bytes of /dev/shm, for runtimes that support it
    devices: Sequence[Device] = ()  # for runtimes that support them

    @property
    def process(self) -> tuple[str, ...]:
        """The command that runs our runtime in the container."""
        return (self.python, *runtime_arguments(self.job_folder))


def runtime_arguments(job_folder: Path, before: str = "") -> tuple[str, ...]:
    """Return Python's arguments for the runtime of the job in `job_folder`.

    `-S`, because the runtime needs no installed package, and images whose site-packages import much at each start would
    slow every job down; `_RUN`, because Python's own way to run a zip (runpy) takes 4 ms more. `before` is Python code
    that runs first."""
    return ("-S", "-c", before + _RUN, str(job_folder / "runtime.zip"), str(job_folder))


@dataclass(frozen=True)
class Cause:
    """Why a container, or the Python in it, did not start."""

    text: str  # a sentence without a full stop: the cause, then the line that shows it
    final: bool = False  # another attempt would fail in the same way
    uncharged: bool = False  # neither the owner nor the image is to blame


class ContainerRuntime(Protocol):
    """One way to wrap a process.

    `program`: the command that it runs on the nodes; empty: none. `supports`: settings beside image and mounts, of
    "shm_size" and "devices", and SHARED_FILES if the process can read the folders in `ContainerStart.shared`, and not
    write into them from a container; without it each job has copies. `scheduler`: the only one under which it works, by
    its display name; empty: any.
    """

    name: str
    program: str
    supports: ClassVar[frozenset[str]] = frozenset()
    scheduler: ClassVar[str] = ""

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        """Return what the runtime's program gets for `image`. `root`: the site's folder of images
        (`containers.images`); `fresh`: pull it again, even if it is there."""

    def check(self, image: str) -> Sequence[str]:
        """Return sentences that say why the resolved `image` cannot run here; empty when none is known."""

    def start_script(self, start: ContainerStart) -> str:
        """Return the text of `start.sh`. Raises templates.ControlCharacter, CannotStart."""

    def explain(self, output: str) -> Cause | None:
        """Return why the process did not start, from what `start.sh` printed; None when that does not show it."""


class UnknownRuntime(ValueError):
    """No container runtime has this name, or its plugin is invalid; the message says how to fix it."""


def container_runtime(name: str, command: str | None = None) -> ContainerRuntime:
    """Return the runtime called `name`; `command` replaces the program it runs (a full path). Raises UnknownRuntime."""
    try:
        made: ContainerRuntime = plugins.load(plugins.CONTAINERS, name)(command)
    except plugins.PluginError as error:
        raise UnknownRuntime(str(error)) from None
    return made
