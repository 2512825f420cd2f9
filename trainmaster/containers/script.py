"""Renders `start.sh` for runtimes that use containers, from the values that all of them need."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.containers.base import NODE_DIR, Bind, CannotStart, ContainerStart
from trainmaster.templates import render


@dataclass(frozen=True)
class Pattern:
    """A variable that passes into the container, or all whose name begins so."""

    prefix: str
    open: bool = False


# Variables that the runtime and the communication libraries read, and that only the scheduler sets.
FORWARDED = (
    Pattern("TRAINMASTER_", open=True),
    Pattern("SLURM_", open=True),
    Pattern("SLURMD_NODENAME"),
    Pattern("PBS_JOBID"),
    Pattern("CUDA_VISIBLE_DEVICES"),
    Pattern("CUDA_DEVICE_ORDER"),
    Pattern("CUDA_MPS_", open=True),
    Pattern("NVIDIA_VISIBLE_DEVICES"),
    Pattern("NVIDIA_DRIVER_CAPABILITIES"),
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


def container_script(template: str, start: ContainerStart, **values: object) -> str:
    """Render `template` (one that extends templates/start_container.sh.j2) for `start`.

    Raises templates.ControlCharacter, jinja2.UndefinedError.
    """
    folder = str(start.job_folder)
    below = [bind for bind in start.binds if _below_node(bind)]
    return render(
        template,
        job_folder=folder,
        scratch=list(start.scratch),
        forwarded=FORWARDED,
        variables=sorted(start.variables.items()),
        # A user's own mount replaces the private one.
        mount_tmp=_is_free("/tmp", start.binds),  # noqa: S108
        mount_node_dir=_is_free(NODE_DIR, start.binds),
        node_dir=NODE_DIR,
        shared=[str(each) for each in start.shared],
        binds=[Bind(folder, folder), *(bind for bind in start.binds if bind not in below)],
        targets=[bind.container_path.rstrip("/") for bind in start.binds],
        inside=[(bind, posixpath.relpath(bind.container_path, NODE_DIR)) for bind in below],
        image_named=start.image,
        fresh=start.fresh,
        gpus=start.gpus,
        rocm=start.rocm,
        **values,
    )


def refuse_characters(start: ContainerStart, characters: str, runtime: str) -> None:
    """Raise CannotStart for a path with one of `characters`, which the runtime's command line cannot express."""
    paths = [str(start.job_folder), *map(str, start.shared)]
    paths += [path for bind in start.binds for path in (bind.host_path, bind.container_path)]
    for path in paths:
        if character := next((c for c in path if c in characters), None):
            raise CannotStart(f"bind_mounts: {runtime} cannot mount {path!r}: no path may hold {character!r} there.")


def _is_free(path: str, binds: Sequence[Bind]) -> bool:
    return all(bind.container_path.rstrip("/") != path for bind in binds)


def _below_node(bind: Bind) -> bool:
    """Whether the mount is in the run folder, which is mounted before it."""
    return posixpath.normpath(bind.container_path).startswith(f"{NODE_DIR}/")
