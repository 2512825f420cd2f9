"""Container runtimes for Enroot (3.4 or later) and for Pyxis, with which Slurm itself starts Enroot containers."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import ClassVar

from trainmaster.containers.apptainer import unreadable
from trainmaster.containers.base import SHARED_FILES, CannotStart, Cause, ContainerStart
from trainmaster.containers.causes import DAMAGED, NO_IMAGE, NO_PYTHON, NO_SOURCE, NOT_FETCHED, explained, sign
from trainmaster.containers.images import below
from trainmaster.containers.script import container_script, refuse_characters

SUFFIX = ".sqsh"
_REGISTRY = re.compile(r"([^/]*[.:][^/]*|localhost)/(.+)")
# Messages of Enroot 4 and Pyxis 0.20.
_SIGNS = (
    sign(r"\[ERROR\] No such file or directory: ", NO_IMAGE),
    sign(r"\[ERROR\] (Invalid image format|Invalid argument): ", DAMAGED),
    sign(r"enroot-switchroot: failed to execute: \S*python\S*: No such file|exec: \S*python\S*: not found", NO_PYTHON),
    sign(r"enroot-mount: failed to mount: ", NO_SOURCE),
    sign(r"\[ERROR\] (Could not process|URL) ", NOT_FETCHED, final=False),
    sign(r"pyxis: .*No such file or directory", NO_IMAGE),
    sign(r"pyxis: failed to import docker image", NOT_FETCHED, final=False),
    sign(r"execve\(\): \S*python\S*: No such file", NO_PYTHON),
    sign(r"pyxis: .*(failed|couldn't)", "Pyxis could not start the container", final=False),
    sign(r"\[ERROR\] ", "Enroot could not start the container", final=False),
)


class Enroot:
    """Run the process with `enroot start`, from a squashfs image or a container that the account has created."""

    name = "enroot"
    program = "enroot"
    supports: ClassVar[frozenset[str]] = frozenset({SHARED_FILES})
    scheduler: ClassVar[str] = ""

    def __init__(self, command: str | None = None) -> None:
        self.command = command or self.program

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        """Keep a path; look a name up below `root`, where it otherwise names a container that was created as Determined
        asks: with + for / and :."""
        del fresh
        if not image or os.path.isabs(image):
            return image
        name = image.removeprefix("docker://")
        return below(root, name) or below(root, name + SUFFIX) or re.sub("[/:]", "+", name)

    def check(self, image: str) -> Sequence[str]:
        if not image:
            return (f"No container image is given: set environment.image to the path of a {SUFFIX} file.",)
        if image.startswith("-"):
            return (f"{image!r} is not the name of a container.",)
        return unreadable(image, "a file in squashfs format nor a folder") if os.path.isabs(image) else ()

    def start_script(self, start: ContainerStart) -> str:
        for trouble in self.check_words(start):
            raise CannotStart(trouble)
        refuse_characters(start, ": \t", "Enroot")
        return container_script(
            "start_enroot.sh.j2",
            start,
            program=self.command,
            after=(start.image, *start.process),
        )

    def check_words(self, start: ContainerStart) -> Sequence[str]:
        """Return what is wrong with the image's name, wherever the image is."""
        return () if start.image and not start.image.startswith("-") else self.check(start.image)

    def explain(self, output: str) -> Cause | None:
        return explained(output, _SIGNS)


class Pyxis:
    """Run the process with `srun --container-image`, in a step of its own on each node."""

    name = "pyxis"
    program = "srun"
    supports: ClassVar[frozenset[str]] = frozenset({SHARED_FILES})
    scheduler: ClassVar[str] = "Slurm"

    def __init__(self, command: str | None = None) -> None:
        self.command = command or self.program

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        """Keep a path; look a name up below `root`, otherwise pull it, with Enroot's # after the host."""
        if not image or os.path.isabs(image):
            return image
        name = image.removeprefix("docker://")
        if not fresh and (path := below(root, name) or below(root, name + SUFFIX)):
            return path
        return _REGISTRY.sub(r"\1#\2", name) if "#" not in name else name

    def check(self, image: str) -> Sequence[str]:
        if not image:
            return (f"No container image is given: set environment.image to the path of a {SUFFIX} file, or a name.",)
        return unreadable(image, "a file in squashfs format nor a folder") if os.path.isabs(image) else ()

    def start_script(self, start: ContainerStart) -> str:
        if not start.image:
            raise CannotStart(self.check("")[0])
        refuse_characters(start, ":, \t", "Pyxis")
        return container_script(
            "start_pyxis.sh.j2",
            start,
            program=self.command,
            image=f"--container-image={start.image}",
            workdir=f"--container-workdir={start.job_folder}",
            process=start.process,
        )

    def explain(self, output: str) -> Cause | None:
        return explained(output, _SIGNS)
