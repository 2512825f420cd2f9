"""Apptainer (1.1 or later) and Singularity.

The container gets a clean environment, a home and a /tmp of its own on the node's disk, the job folder under its own
path, and the mounts that were asked for; nothing else of the host's file systems but what the site's apptainer.conf
says. The host's /dev stays, because InfiniBand and shared memory live there. `--no-eval` matters: without it Apptainer
1.x runs `$(...)` that stands in the value of a variable.
"""

from __future__ import annotations

import getpass
import os
import posixpath
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.containers.base import NODE_DIR, Bind, Start
from trainmaster.templates import render

SIF_MAGIC_OFFSET = 32  # bytes of launch script before "SIF_MAGIC", from the SIF specification
SIF_MAGIC = b"SIF_MAGIC"
# Images that Apptainer fetches or finds by itself; there is no file to look at.
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


@dataclass(frozen=True)
class Pattern:
    """A variable that crosses into the container, or all whose name begins so."""

    prefix: str
    open: bool = False


# What the runtime and the communication libraries read; the scheduler sets them, nobody else.
FORWARDED = (
    Pattern("TRAINMASTER_", open=True),
    Pattern("SLURM_", open=True),
    Pattern("SLURMD_NODENAME"),
    Pattern("PBS_JOBID"),
    Pattern("CUDA_VISIBLE_DEVICES"),
    Pattern("CUDA_DEVICE_ORDER"),
    Pattern("CUDA_MPS_", open=True),
    Pattern("NVIDIA_VISIBLE_DEVICES"),
    Pattern("ROCR_VISIBLE_DEVICES"),
    Pattern("HIP_VISIBLE_DEVICES"),
    Pattern("GPU_DEVICE_ORDINAL"),
    Pattern("NCCL_", open=True),
    Pattern("RCCL_", open=True),
    Pattern("GLOO_", open=True),
    Pattern("UCX_", open=True),
    Pattern("FI_", open=True),
    Pattern("PMI_", open=True),
    Pattern("PMI2_", open=True),
    Pattern("PMIX_", open=True),
    Pattern("OMP_NUM_THREADS"),
)


class Apptainer:
    """Run the process in an image with `apptainer exec`."""

    def __init__(self, name: str = "apptainer", command: str | None = None) -> None:
        self.name = name
        self.command = command or name
        # Each reads only its own prefix without a warning.
        self._prefix = "SINGULARITYENV_" if name == "singularity" else "APPTAINERENV_"

    def before(self, start: Start) -> tuple[str, ...]:
        """The words of the command up to the mounts that are known only on the node."""
        words = [self.command, "--silent", "exec", "--cleanenv", "--no-eval", "--no-mount", "tmp"]
        if start.gpus:
            words.append("--nv")
        if start.rocm:
            words.append("--rocm")
        if start.fresh and start.image.startswith(FETCHED):
            words.append("--disable-cache")
        folder = str(start.job_folder)
        for bind in (Bind(folder, folder), *(each for each in start.binds if not _below_node(each))):
            words += ["--mount", mount(bind)]
        return (*words, "--pwd", folder)

    def start_script(self, start: Start) -> str:
        return render(
            "start_apptainer.sh.j2",
            job_folder=start.job_folder,
            scratch=list(start.scratch),
            variables=sorted(start.variables.items()),
            variable_prefix=self._prefix,
            forwarded=FORWARDED,
            before=self.before(start),
            # A user's own mount takes the place of the private one.
            mount_tmp=_is_free("/tmp", start.binds),  # noqa: S108
            node_dir=NODE_DIR if _is_free(NODE_DIR, start.binds) else "",
            inside=[
                (bind.host_path, posixpath.relpath(bind.container_path, NODE_DIR), mount(bind))
                for bind in start.binds
                if _below_node(bind)
            ],
            after=(start.image, *start.process),
        )

    def check(self, image: str) -> Sequence[str]:
        if not image:
            return ("No container image is given: set environment.image to the path of a .sif file.",)
        if image.startswith(TRANSPORTS):
            return ()
        if not os.path.isabs(image):
            return (f"The container image {image!r} must be a full path: give the absolute path of a .sif file.",)
        if _is_image(image):
            return ()
        # One sentence for all, or whoever may create an experiment could ask for any path what is there.
        return (
            f"{image} is no container image that {getpass.getuser()} can use: there is none, or it cannot be read, or "
            "it is neither a folder of an unpacked image nor a file in SIF or squashfs format.",
        )


def _is_image(path: str) -> bool:
    if os.path.isdir(os.path.join(path, ".singularity.d")) or os.path.isdir(os.path.join(path, "bin")):
        return True
    try:
        # Opening a pipe would wait for somebody who writes.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as handle:
            if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                return False
            head = handle.read(SIF_MAGIC_OFFSET + len(SIF_MAGIC))
    except (OSError, ValueError):
        return False
    return head[SIF_MAGIC_OFFSET:] == SIF_MAGIC or head.startswith(b"hsqs")


def resolve_image(image: str, root: str | None, *, fresh: bool = False) -> str:
    """What Apptainer is to be given for `image`, by Determined's rules: a path or an address with a transport stays;
    a name such as `org/name:tag` is looked for below `root`, the site's folder of images, and otherwise pulled; where
    it is to be `fresh`, it is pulled in any case."""
    if not image or os.path.isabs(image) or image.startswith(TRANSPORTS) or image.endswith(".sif"):
        return image
    if root and not fresh and ".." not in image.split("/") and os.path.exists(os.path.join(root, image)):
        return os.path.join(root, image)
    return f"docker://{image}"


def _is_free(path: str, binds: Sequence[Bind]) -> bool:
    return all(bind.container_path.rstrip("/") != path for bind in binds)


def _below_node(bind: Bind) -> bool:
    """Whether it stands in the run folder, which is mounted before it."""
    return posixpath.normpath(bind.container_path).startswith(f"{NODE_DIR}/")


def mount(bind: Bind) -> str:
    """A value for `--mount`: comma separated, each field quoted so that commas and colons in paths survive."""
    fields = ["type=bind", f"source={bind.host_path}", f"destination={bind.container_path}"]
    if bind.read_only:
        fields.append("ro")
    return ",".join('"' + field.replace('"', '""') + '"' if set(field) & set(',"') else field for field in fields)
