"""Facts about this job from its scheduler's environment variables: `TRAINMASTER_*` first, then Slurm's `SLURM_*`."""

from __future__ import annotations

import json
import os
from typing import Dict, List, Mapping, Optional, Tuple

from trainmaster.runtime.errors import BadJobFolder
from trainmaster.runtime.job import JobDescription
from trainmaster.runtime.record import Record

# Where each kind of accelerator announces what a job may use, the most specific first.
_DEVICE_LISTS = {
    "cuda": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
    "rocm": (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "SLURM_STEP_GPUS",
        "SLURM_JOB_GPUS",
    ),
}
_LONGEST_DIGEST = 300  # characters of an image's


class Facts(Record):
    """One node of one job, as its scheduler sees it."""

    job_id: str
    run_id: str  # of this process: schedulers start a job again under the same number
    node_rank: int
    num_nodes: int
    node_name: str
    slot_ids: Tuple[int, ...]
    device_uuids: Tuple[str, ...]
    end_time: Optional[float]  # seconds since the epoch; None when no limit is known
    image_digest: str  # of the container's image, as its start found it; empty where it has none


def read_facts(environ: Mapping[str, str], job: JobDescription) -> Facts:
    """Read the scheduler's facts. Raises BadJobFolder when there is no job id, or what should be a number is none."""
    job_id = environ.get("TRAINMASTER_JOB_ID") or environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job_id:
        raise BadJobFolder(
            "neither TRAINMASTER_JOB_ID nor SLURM_JOB_ID is set: the runtime is started by start.sh, under a scheduler"
        )
    num_nodes = _integer(environ, ("TRAINMASTER_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"), 1)
    node_rank = _integer(environ, ("TRAINMASTER_NODE_RANK", "SLURM_NODEID"), 0)
    if not 0 <= node_rank < num_nodes:
        raise BadJobFolder("node rank %d does not fit %d nodes" % (node_rank, num_nodes))
    slot_ids, uuids = _slots(environ, job, node_rank, num_nodes)
    return Facts(
        job_id=job_id,
        run_id=os.urandom(8).hex(),
        node_rank=node_rank,
        num_nodes=num_nodes,
        node_name=environ.get("TRAINMASTER_NODE_NAME") or environ.get("SLURMD_NODENAME") or os.uname().nodename,
        slot_ids=slot_ids,
        device_uuids=uuids,
        end_time=_end_time(environ),
        image_digest=_plain(environ.get("TRAINMASTER_IMAGE_DIGEST", "")),
    )


def _plain(text: str) -> str:
    return "".join(letter for letter in text if "!" <= letter <= "~")[:_LONGEST_DIGEST]


def _slots(
    environ: Mapping[str, str], job: JobDescription, node_rank: int, num_nodes: int
) -> Tuple[Tuple[int, ...], Tuple[str, ...]]:
    devices = device_list(environ, job)
    if devices or environ.get("TRAINMASTER_SLOT_IDS"):
        return _number(devices)
    share = job.slots // num_nodes + (1 if node_rank < job.slots % num_nodes else 0)
    return tuple(range(share)), ()


def device_list(environ: Mapping[str, str], job: JobDescription) -> List[str]:
    """List numbers or UUIDs of the devices that the scheduler gave this node; empty when it does not list any.
    Raises BadJobFolder."""
    listed = environ.get("TRAINMASTER_SLOT_IDS")
    if listed:
        try:
            return [str(int(slot)) for slot in json.loads(listed)]
        except (TypeError, ValueError):
            raise BadJobFolder("TRAINMASTER_SLOT_IDS must be a JSON list of integers, not %r" % listed) from None
    if job.slots > 0:
        for name in _DEVICE_LISTS.get(job.slot_type, ()):
            devices = parse_devices(environ.get(name, ""))
            if devices:
                return devices
    return []


def parse_devices(text: str) -> List[str]:
    """Parse a list of devices such as `0,1`, `0-3`, `gpu:1,3` or `GPU-8b1f...`; empty when it names none.

    Slurm 22.05 writes ranges into SLURM_JOB_GPUS; CUDA ends a list at the first entry it does not know (CUDA
    programming guide, "CUDA environment variables"); NoDevFiles is Slurm's word for none.
    """
    devices: List[str] = []
    for word in text.replace("gpu:", "").split(","):
        word = word.strip()
        first, dash, last = word.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            devices.extend(str(index) for index in range(int(first), int(last) + 1))
        elif word.isdigit() or word.startswith(("GPU-", "MIG-")):
            devices.append(word)
        else:
            break
    return devices


def _number(devices: List[str]) -> Tuple[Tuple[int, ...], Tuple[str, ...]]:
    if all(device.isdigit() for device in devices):
        return tuple(int(device) for device in devices), ()
    index = _nvidia_indices()
    return (
        tuple(int(device) if device.isdigit() else index.get(device, place) for place, device in enumerate(devices)),
        tuple(device for device in devices if not device.isdigit()),
    )


def _nvidia_indices() -> Dict[str, int]:
    """Map UUID -> index for the visible NVIDIA devices; empty when they cannot be listed."""
    try:
        from trainmaster.runtime.nvml import Nvml, NvmlError  # few jobs need it, and every job would wait for it
    except ImportError:  # a small image's Python may have no ctypes
        return {}
    try:
        gpus, _ = Nvml().gpus()
    except NvmlError:
        return {}
    return {gpu.uuid: index for index, gpu in enumerate(gpus)}


def _integer(environ: Mapping[str, str], names: Tuple[str, ...], default: int) -> int:
    for name in names:
        text = environ.get(name)
        if text:
            try:
                return int(text)
            except ValueError:
                raise BadJobFolder("%s must be a whole number, not %r" % (name, text)) from None
    return default


def _end_time(environ: Mapping[str, str]) -> Optional[float]:
    for name in ("TRAINMASTER_END_TIME", "SLURM_JOB_END_TIME"):
        text = environ.get(name)
        if text:
            try:
                end = float(text)
            except ValueError:
                raise BadJobFolder("%s must be seconds since the epoch, not %r" % (name, text)) from None
            # Slurm writes its "unlimited" as a huge number or 0.
            return end if 0 < end < 2**32 - 2 else None
    return None
