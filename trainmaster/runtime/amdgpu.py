"""AMD's GPUs as Linux shows them in /sys. Unlike `rocm-smi`, nothing need be installed in an image.

Sources: the kernel's documentation of amdgpu ("GPU Power/Thermal Controls and Monitoring", "GPU Driver sysfs") and of
amdkfd's topology, by which ROCm counts the GPUs.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence

from trainmaster.runtime.record import Record

_TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"


class Gpu(Record):
    """A GPU that this process may use. `uuid` is ROCm's name for it."""

    uuid: str
    render_node: str  # /dev/dri/renderD<n>
    folder: str  # of its files in /sys


def has_driver(root: str = "/") -> bool:
    """Whether this machine's kernel has a driver for ROCm's GPUs."""
    return os.path.isdir(os.path.join(root, _TOPOLOGY))


def gpus(root: str = "/") -> List[Gpu]:
    """List the GPUs whose devices can be opened, in ROCm's order; `root` is where the file system begins."""
    gpus: List[Gpu] = []
    folder = os.path.join(root, _TOPOLOGY)
    try:
        names = sorted((name for name in os.listdir(folder) if name.isdigit()), key=int)
    except OSError:
        return []
    for name in names:
        facts = _properties(os.path.join(folder, name, "properties"))
        minor = facts.get("drm_render_minor", 0)
        if not facts.get("simd_count") or not minor:
            continue  # a processor
        device = os.path.join(root, "dev/dri/renderD%d" % minor)
        if not _opens(device):
            continue  # another job's
        serial = facts.get("unique_id", 0)
        uuid = "GPU-%016x" % serial if serial else "GPU-renderD%d" % minor
        gpus.append(Gpu(uuid, device, os.path.join(root, "sys/class/drm/renderD%d/device" % minor)))
    return gpus


def chosen(named: Optional[Sequence[str]], root: str = "/") -> List[Gpu]:
    """List the GPUs that a process may use: `named` are the entries of ROCR_VISIBLE_DEVICES, None where it is not
    set."""
    listed = gpus(root)
    if named is None:
        return listed
    gpus_chosen: List[Gpu] = []
    for name in named:
        fitting = listed[int(name) : int(name) + 1] if name.isdigit() else [one for one in listed if one.uuid == name]
        if not fitting:
            break
        gpus_chosen += fitting
    return gpus_chosen


def used_percent(gpu: Gpu) -> Optional[int]:
    """Percent of time that the GPU is busy; None where the kernel does not report it."""
    return _number(gpu, "gpu_busy_percent")


def free_memory(gpu: Gpu) -> Optional[int]:
    """Free memory in bytes; None where the kernel does not report it."""
    total, used = _number(gpu, "mem_info_vram_total"), _number(gpu, "mem_info_vram_used")
    return None if total is None or used is None else max(0, total - used)


def _number(gpu: Gpu, name: str) -> Optional[int]:
    try:
        with open(os.path.join(gpu.folder, name), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _properties(path: str) -> Dict[str, int]:
    """Read a file of `name number` lines; empty when a control group forbids it."""
    try:
        with open(path, encoding="ascii") as file:
            words = [line.split() for line in file]
    except (OSError, ValueError):
        return {}
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _opens(device: str) -> bool:
    """Whether a device can be opened: control groups do not show in a file's mode."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
