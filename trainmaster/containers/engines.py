"""Container runtimes for Docker and Podman in batch jobs: one container per node, started by the job itself as the
job's account.

The process has no capabilities and cannot gain any. A container would outlive a killed job, because it belongs
to Docker's daemon or to Podman's monitor and not to the job: so a process in it waits for a lock that `start.sh`
holds, and kills everything in the container as soon as the kernel releases the lock, however `start.sh` ended.

An account that may use a Docker daemon can become root on its host, so this is for sites that accept that of the
accounts that jobs run as. The process in the container cannot: no job mounts the daemon's socket, or another closed
path of the host (`containers.docker.CLOSED`), through any link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trainmaster.containers.base import SHARED_FILES, CannotStart, Cause, ContainerStart, runtime_arguments
from trainmaster.containers.causes import NO_IMAGE, NO_PYTHON, NO_SOURCE, NOT_FETCHED, Sign, explained, sign
from trainmaster.containers.docker import CLOSED, OPEN, SOCKETS, check_binds, check_devices
from trainmaster.containers.script import container_script

NO_INIT = "The container runtime on the node has no init for containers (tini, catatonit)"
ALIVE = "/run/trainmaster.alive"  # in the container: the file that start.sh holds a lock on
# Python code in one line: a child of the container's init, so that no other process waits for it, gets the lock when it
# is free, and kills all processes of the container but its init, which then ends.
_WATCH = (
    "import os, fcntl; main = os.fork(); main or os.fork() and os._exit(0); "
    f"main or fcntl.flock(os.open({ALIVE!r}, os.O_RDONLY), fcntl.LOCK_EX) or os.kill(-1, 9) or os._exit(0); os.wait(); "
)


class _Engine:
    """Base class of Docker and Podman, which share nearly all options of `run`."""

    name: str
    program: str
    supports: ClassVar[frozenset[str]] = frozenset({"shm_size", "devices", SHARED_FILES})
    scheduler: ClassVar[str] = ""
    fresh: ClassVar[str]  # the pull policy that fetches an image that is there
    own_words: ClassVar[tuple[str, ...]]
    signs: ClassVar[Sequence[Sign]]

    def __init__(self, command: str | None = None) -> None:
        self.command = command or self.program

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        """Return `image` unchanged: the program finds it in its own storage, or in a registry."""
        del root, fresh
        return image.removeprefix("docker://")

    def check(self, image: str) -> Sequence[str]:
        if not image:
            return (f"No container image is given: set environment.image to one that {self.name} knows or can pull.",)
        if image.startswith("-") or any(c.isspace() for c in image):
            return (f"{image!r} is not the name of a container image: {self.name} takes names such as org/name:tag.",)
        return ()

    def start_script(self, start: ContainerStart) -> str:
        for trouble in (*self.check(start.image), *check_binds(start.binds), *check_devices(start.devices)):
            raise CannotStart(trouble)
        for device in start.devices:
            if ":" in device.host_path + device.container_path:
                raise CannotStart(f"resources.devices: {self.name} cannot pass {device.host_path!r}: it holds a colon.")
        words = [self.command, "run", "--rm", "--init", "--network", "host", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--log-driver", "none"]
        words += ["--label", f"trainmaster.job={start.job_folder.name}"]
        words += ["--pull", self.fresh if start.fresh else "missing"]
        words += ["--workdir", str(start.job_folder), "--entrypoint", start.python, *self.own_words]
        if start.shm_size is not None:
            words += ["--shm-size", str(start.shm_size)]
        for device in start.devices:
            words += ["--device", f"{device.host_path}:{device.container_path}:{device.mode}"]
        return container_script(
            f"start_{self.name}.sh.j2",
            start,
            program=self.command,
            token=start.job_folder.name,
            before=words,
            after=(start.image, *runtime_arguments(start.job_folder, _WATCH)),
            alive=ALIVE,
            closed=[*CLOSED],
            opened=[*OPEN],
            sockets=[*SOCKETS],
        )

    def explain(self, output: str) -> Cause | None:
        return explained(output, self.signs)


class Docker(_Engine):
    """Run the process with `docker run`, by the daemon of the node."""

    name = "docker"
    program = "docker"
    fresh = "always"
    own_words = ()
    # Messages of Docker 28.
    signs = (
        sign(r"pull access denied|manifest unknown|No such image|repository name must|invalid reference", NO_IMAGE),
        sign(r"Error response from daemon: .*(registry|lookup|dial tcp|Client\.Timeout)", NOT_FETCHED, final=False),
        sign(r"docker-init.*not found", NO_INIT, final=False),
        sign(r"exec: \S+: (executable file not found|stat .*: no such file)", NO_PYTHON),
        sign(r"tini .* exec \S+ failed: ", NO_PYTHON),
        sign(r"bind source path does not exist", NO_SOURCE),
        sign(
            r"(C|c)annot connect to the Docker daemon|permission denied while trying to connect",
            "The job's account may not use the node's Docker daemon",
            final=False,
        ),
        sign(r"^docker: ", "Docker could not start the container", final=False),
    )


class Podman(_Engine):
    """Run the process with rootless `podman run` (3.3 or later, with crun), as the job's own account."""

    name = "podman"
    program = "podman"
    fresh = "always"
    # In the job's own control group, with all groups of the account.
    own_words = ("--userns", "keep-id", "--group-add", "keep-groups", "--cgroups", "disabled", "--http-proxy=false")
    signs = (
        sign(r"manifest unknown|access to the resource is denied|image not known|invalid reference", NO_IMAGE),
        sign(r"(initializing source|pinging container registry|dial tcp|lookup) ", NOT_FETCHED, final=False),
        sign(r"container-init binary not found", NO_INIT, final=False),
        sign(r"executable file .*not found in \$PATH|crun: .*python\S*.*: No such file", NO_PYTHON),
        sign(r"catatonit.* failed to exec pid1: ", NO_PYTHON),
        sign(r"^Error: statfs .*: no such file", NO_SOURCE),
        sign(r"^Error: ", "Podman could not start the container", final=False),
    )
