"""What every container runtime does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


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
    binds: Sequence[Bind] = ()
    gpus: bool = False  # make the host's CUDA libraries visible
    rocm: bool = False
    python: str = "python3"
    scratch: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[str, ...]:
        """The words that run the runtime. `-S`: it needs nothing that an image has installed, and what images make
        Python import at every start would cost every job."""
        return (self.python, "-S", str(self.job_folder / "runtime.zip"), str(self.job_folder))


class ContainerRuntime(Protocol):
    """One way to wrap a process."""

    name: str

    def start_script(self, start: Start) -> str:
        """The text of `start.sh`. Raises templates.ControlCharacter."""

    def check(self, image: str) -> Sequence[str]:
        """Sentences that say why `image` cannot be run here; empty when nothing speaks against it."""
