"""Container runtime for Apptainer (1.1 or later) and Singularity.

The container gets a clean environment, a home and a /tmp of its own on the node's disk, the job folder under its own
path, and the mounts that the job asks for; of the host's other file systems only what the site's apptainer.conf
mounts. The host's /dev stays, because InfiniBand and shared memory live there. `--no-eval` matters: without it
Apptainer 1.x runs `$(...)` that stands in the value of a variable.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from typing import ClassVar

from trainmaster.containers.base import SHARED_FILES, Cause, ContainerStart
from trainmaster.containers.causes import DAMAGED, NO_IMAGE, NO_PYTHON, NO_SOURCE, NOT_FETCHED, explained, sign
from trainmaster.containers.images import below, kind_of
from trainmaster.containers.script import container_script

# Images that Apptainer fetches or finds by itself; there is no file to check.
TRANSPORTS = (
    "docker://",
    "oras://",
    "library://",
    "shub://",
    "instance://",
    "docker-archive:",
    "oci-archive:",
    "oci:",
)
FETCHED = ("docker://", "oras://", "library://", "shub://")  # of these, what comes over the network

# Messages of Apptainer 1.4.5.
_SIGNS = (
    sign(r"could not open image .*: (failed to retrieve path|.*permission denied|.*no such file)", NO_IMAGE),
    sign(r"could not open image .*: image format not recognized", DAMAGED),
    sign(r"image driver mount failure", DAMAGED, final=False),
    sign(r"executable file not found in \$PATH", NO_PYTHON),
    sign(r"^FATAL: +stat \S*python\S*: ", NO_PYTHON),
    sign(r"mount source .* doesn't exist", NO_SOURCE),
    sign(r"Unable to handle .* uri: ", NOT_FETCHED, final=False),
    sign(r"^FATAL: ", "Apptainer could not start the container", final=False),
)


class Apptainer:
    """Run the process in an image with `apptainer exec`."""

    name = "apptainer"
    program = "apptainer"
    supports: ClassVar[frozenset[str]] = frozenset({SHARED_FILES})
    scheduler: ClassVar[str] = ""
    prefix = "APPTAINERENV_"  # each reads only its own without a warning

    def __init__(self, command: str | None = None) -> None:
        self.command = command or self.program

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        return resolve_image(image, root, fresh=fresh)

    def start_script(self, start: ContainerStart) -> str:
        words = [self.command, "--silent", "exec", "--cleanenv", "--no-eval", "--no-mount", "tmp"]
        if start.gpus:
            words.append("--nv")
        if start.rocm:
            words.append("--rocm")
        if start.fresh and start.image.startswith(FETCHED):
            words.append("--disable-cache")
        return container_script(
            "start_apptainer.sh.j2",
            start,
            before=(*words, "--pwd", str(start.job_folder)),
            after=(start.image, *start.process),
            variable_prefix=self.prefix,
        )

    def check(self, image: str) -> Sequence[str]:
        if not image:
            return ("No container image is given: set environment.image to the path of a .sif file.",)
        if image.startswith(TRANSPORTS):
            return ()
        if not os.path.isabs(image):
            return (f"The container image {image!r} must be a full path: give the absolute path of a .sif file.",)
        return unreadable(image, "a folder of an unpacked image nor a file in SIF or squashfs format")

    def explain(self, output: str) -> Cause | None:
        return explained(output, _SIGNS)


class Singularity(Apptainer):
    """The same runtime under its former name, which SingularityCE still uses."""

    name = "singularity"
    program = "singularity"
    prefix = "SINGULARITYENV_"


def unreadable(path: str, wanted: str) -> Sequence[str]:
    """Return why the image at `path` cannot be used. The sentence is the same for all causes: otherwise any user could
    probe which paths exist."""
    if kind_of(path):
        return ()
    return (
        f"{path} is not a container image that {getpass.getuser()} can use: it does not exist, cannot be read, or "
        f"it is neither {wanted}.",
    )


def resolve_image(image: str, root: str | None, *, fresh: bool = False) -> str:
    """Return what Apptainer runs for `image`, by Determined's rules: a path or an address with a transport stays; a
    name such as `org/name:tag` is looked up below `root`, the site's folder of images, and otherwise pulled; with
    `fresh` it is always pulled."""
    if not image or os.path.isabs(image) or image.startswith(TRANSPORTS) or image.endswith(".sif"):
        return image
    if not fresh and (path := below(root, image)):
        return path
    return f"docker://{image}"
