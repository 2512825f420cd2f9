"""What every container runtime does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

NODE_DIR = "/run/determined"  # the run folder in a container: Determined's harness looks there for info/*.json
_RUN = (
    "import sys, zipimport; sys.path[0] = sys.argv.pop(1); "
    'exec(zipimport.zipimporter(sys.path[0]).get_code("__main__"))'
)


@dataclass(frozen=True)
class Bind:
    """A folder or file of the node that the container sees."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True)
class Start:
    """The start of one node's process.

    `variables` reach the process with exactly these values. `scratch` are folders on the node in which a private
    folder for temporary files is tried first; $SLURM_TMPDIR, $TMPDIR and /tmp follow.
    """

    job_folder: Path
    image: str = ""
    fresh: bool = False  # an image that is fetched is fetched anew, whatever is kept of it
    binds: Sequence[Bind] = ()
    gpus: bool = False  # make the host's CUDA libraries visible
    rocm: bool = False
    python: str = "python3"
    scratch: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[str, ...]:
        """The words that run the runtime."""
        return (self.python, *runtime_arguments(self.job_folder))


def runtime_arguments(job_folder: Path) -> tuple[str, ...]:
    """What Python is told to run the runtime of the job in `job_folder`: `-S`, because it needs nothing that an image
    has installed, and what images make Python import at every start would cost every job; `_RUN`, because Python's own
    way to run a zip (runpy) costs 4 ms more."""
    return ("-S", "-c", _RUN, str(job_folder / "runtime.zip"), str(job_folder))


class ContainerRuntime(Protocol):
    """One way to wrap a process."""

    name: str

    def start_script(self, start: Start) -> str:
        """The text of `start.sh`. Raises templates.ControlCharacter."""

    def check(self, image: str) -> Sequence[str]:
        """Sentences that say why `image` cannot be run here; empty when nothing speaks against it."""
