"""Container runtime for Charliecloud (0.37 or later): `ch-run` on a folder or a squashfs file, without a daemon and
without privileges."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from trainmaster.containers.apptainer import unreadable
from trainmaster.containers.base import CannotStart, Cause, ContainerStart
from trainmaster.containers.causes import DAMAGED, NO_IMAGE, NO_PYTHON, explained, sign
from trainmaster.containers.images import below
from trainmaster.containers.script import container_script, refuse_characters

SUFFIX = ".sqfs"
# Messages of Charliecloud 0.45.
_SIGNS = (
    sign(r"ch-run\[\d+\]: error: can't exec: \S*python\S*: ", NO_PYTHON),
    sign(r"ch-run\[\d+\]: error: (can't stat|image not found|can't open): ", NO_IMAGE),
    sign(r"ch-run\[\d+\]: error: (unknown image type|can't mount SquashFS|.*SquashFS)", DAMAGED),
    sign(r"ch-run\[\d+\]: error: ", "Charliecloud could not start the container", final=False),
)


class Charliecloud:
    """Run the process with `ch-run`."""

    name = "charliecloud"
    program = "ch-run"
    supports: ClassVar[frozenset[str]] = frozenset()  # it cannot mount read-only
    scheduler: ClassVar[str] = ""

    def __init__(self, command: str | None = None) -> None:
        self.command = command or self.program

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        """Keep a path; look a name up below `root`, where it otherwise names an image in the account's own storage
        (ch-image)."""
        del fresh
        if not image or os.path.isabs(image):
            return image
        name = image.removeprefix("docker://")
        return below(root, name) or below(root, name + SUFFIX) or name

    def check(self, image: str) -> Sequence[str]:
        if not image:
            return (f"No container image is given: set environment.image to a folder or a {SUFFIX} file.",)
        if image.startswith("-"):
            return (f"{image!r} is not the name of an image.",)
        return (
            unreadable(image, "a folder of an unpacked image nor a file in squashfs format") if image[0] == "/" else ()
        )

    def start_script(self, start: ContainerStart) -> str:
        if not start.image or start.image.startswith("-"):
            raise CannotStart(self.check(start.image)[0])
        refuse_characters(start, ":", "Charliecloud")
        if read_only := next((bind for bind in start.binds if bind.read_only), None):
            raise CannotStart(
                f"bind_mounts: Charliecloud cannot mount {read_only.host_path!r} read-only: leave read_only out, "
                "and let the folder's own permissions protect it."
            )
        words = [self.command, "--write-fake", "--env-no-expand", "--unset-env=TMPDIR", "--unset-env=*[!A-Za-z0-9_]*"]
        if start.gpus:
            words.append("--cdi=nvidia.com/gpu")
        return container_script(
            "start_charliecloud.sh.j2",
            start,
            before=(*words, "--cd", str(start.job_folder)),
            image=start.image,
            process=start.process,
        )

    def explain(self, output: str) -> Cause | None:
        return explained(output, _SIGNS)
