"""Checks that a node has what its job was given: the GPUs in the container, and the slots on every node.

A job is ended only where it is sure that they are missing; doubtful cases are logged, and the training
begins: GPUs that a test site only pretends to have, parts of GPUs, drivers that do not answer.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence

from trainmaster.runtime.errors import MissingDevices, NoRendezvous
from trainmaster.runtime.facts import Facts, device_list, parse_devices
from trainmaster.runtime.job import JobDescription
from trainmaster.runtime.record import Record
from trainmaster.runtime.rendezvous import Rendezvous

if TYPE_CHECKING:
    from trainmaster.runtime.nvml import Gpu, Nvml

_PATIENCE = 30.0  # seconds for drivers: one without a persistence daemon wakes each GPU up for a second or two


class DeviceFinding(Record):
    """Result of the check. At most one of the two is set."""

    missing: Optional[str] = None  # a sentence: the training cannot have what it was given
    warning: Optional[str] = None  # a sentence for the log


class DeviceCheck(threading.Thread):
    """Checks the node's GPUs in a thread, beside other work: a driver can take seconds, and a broken one may never
    answer."""

    def __init__(self, job: JobDescription, facts: Facts, environ: Mapping[str, str], root: str = "/") -> None:
        super().__init__(name="device-check", daemon=True)
        self._job, self._facts, self._environ, self._root = job, facts, environ, root
        self._finding: Optional[DeviceFinding] = None

    def run(self) -> None:
        try:
            self._finding = check_devices(self._job, self._facts, self._environ, self._root)
        except (OSError, ValueError) as error:
            self._finding = DeviceFinding(warning="the GPUs of this node could not be checked: %s" % error)

    def result(self, patience: float = _PATIENCE) -> Optional[str]:
        """Wait for the check; a warning for the log, None when all is well. Raises MissingDevices."""
        self.join(patience)
        if self._finding is None:
            text = "the driver of the GPUs of node %s has not answered for %d s: see nvidia-smi or rocm-smi there"
            return text % (self._facts.node_name, patience)
        if self._finding.missing is not None:
            raise MissingDevices(self._finding.missing)
        return self._finding.warning


def check_devices(job: JobDescription, facts: Facts, environ: Mapping[str, str], root: str = "/") -> DeviceFinding:
    """Compare what the scheduler gave with what is there. `root` is where the file system begins."""
    if not facts.slot_ids or job.slot_type not in ("cuda", "rocm"):
        return DeviceFinding()
    given = device_list(environ, job)
    if job.slot_type == "rocm":
        return _check_amd(facts, given, root)
    return _check_nvidia(facts, given, environ, root)


def check_slots(job: JobDescription, facts: Facts, rendezvous: Rendezvous) -> None:
    """Check that all nodes together have the slots of the job: otherwise they would train with another batch size
    than was asked for. Raises MissingDevices on a node with too few, NoRendezvous on the others."""
    counts = rendezvous.slot_counts
    if sum(counts) >= job.slots:
        return
    most = max(counts)
    short = ["node %d (%s) has %d" % (rank, rendezvous.addresses[rank], n) for rank, n in enumerate(counts) if n < most]
    if len(counts) == 1:
        text = "node %s has %d slots instead of %d" % (facts.node_name, counts[0], job.slots)
    else:
        text = "the %d nodes have %d slots instead of %d: %s" % (
            len(counts),
            sum(counts),
            job.slots,
            ", ".join(short) + " where others have %d" % most if short else "each has %d" % most,
        )
    fault = NoRendezvous if counts[rendezvous.rank] == most and short else MissingDevices
    raise fault(
        "%s; the list of devices that the scheduler sets there (CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS and the like) is "
        "too short: an administrator should compare it with the node's configuration (gres.conf)" % text
    )


# -- NVIDIA --------------------------------------------------------------------------------------------------------


def _check_nvidia(facts: Facts, given: Sequence[str], environ: Mapping[str, str], root: str) -> DeviceFinding:
    if not os.path.exists(os.path.join(root, "proc/driver/nvidia/version")):
        return DeviceFinding(warning="%s, but its kernel has no NVIDIA driver" % _was_given(facts, given))
    try:
        from trainmaster.runtime.nvml import Nvml, NvmlError  # a small image's Python may have no ctypes
    except ImportError as error:
        return _without_nvml(facts, given, str(error), root)
    try:
        nvml = Nvml()
        gpus, broken = nvml.gpus()
    except NvmlError as error:
        return _without_nvml(facts, given, str(error), root)
    lost = [uuid for uuid in facts.device_uuids if not _is_there(nvml, gpus, uuid)]
    if lost:
        return _missing(facts, given, len(facts.slot_ids) - len(lost), lost, broken)
    if facts.device_uuids or any(gpu.divided for gpu in gpus):
        return DeviceFinding()
    if len(gpus) < len(facts.slot_ids):
        if not given:
            text = "%s, but the container sees %d" % (_was_given(facts, given), len(gpus))
            return DeviceFinding(warning=text + (" (%s)" % "; ".join(broken) if broken else ""))
        return _missing(facts, given, len(gpus), _names_of_lost(facts, given, gpus, environ, root), broken)
    named = [name for name in parse_devices(environ.get("CUDA_VISIBLE_DEVICES", "")) if name.isdigit()]
    if any(int(name) >= len(gpus) for name in named):
        text = "CUDA_VISIBLE_DEVICES is %s on node %s, but the container sees %d GPUs, which CUDA counts from 0"
        return DeviceFinding(warning=text % (",".join(named), facts.node_name, len(gpus)))
    return DeviceFinding()


def _is_there(nvml: Nvml, gpus: Sequence[Gpu], uuid: str) -> bool:
    from trainmaster.runtime.nvml import NvmlError

    if any(gpu.uuid.startswith(uuid) for gpu in gpus):
        return True
    try:
        nvml.find(uuid)
    except NvmlError:
        return False
    return True


def _without_nvml(facts: Facts, given: Sequence[str], why: str, root: str) -> DeviceFinding:
    names = os.listdir(os.path.join(root, "dev"))
    if given and not any(name.startswith("nvidia") and name[6:].isdigit() for name in names):
        return _missing(facts, given, 0, [], ["no /dev/nvidia0 or other device"])
    return DeviceFinding(warning="%s, but they cannot be counted: %s" % (_was_given(facts, given), why))


def _names_of_lost(
    facts: Facts, given: Sequence[str], gpus: Sequence[Gpu], environ: Mapping[str, str], root: str
) -> List[str]:
    """Numbers and UUIDs of the missing GPUs; empty when it is not known which they are. Where control groups hide
    others' GPUs, CUDA counts those that are left from 0: Slurm's own list has the node's numbers."""
    numbers = list(given)
    for variable in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        listed = parse_devices(environ.get(variable, ""))
        if len(listed) == len(given):
            numbers = listed
            break
    minors = {str(gpu.minor) for gpu in gpus}
    lost = [number for number in numbers if number not in minors]
    if len(lost) != len(facts.slot_ids) - len(gpus):
        return []
    uuids = _uuids_by_minor(root)
    return ["%s (%s)" % (number, uuids[number]) if number in uuids else number for number in lost]


def _uuids_by_minor(root: str) -> Dict[str, str]:
    """Read the UUIDs of all GPUs of the node from the driver's files in /proc, by minor number."""
    uuids: Dict[str, str] = {}
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    try:
        places = os.listdir(folder)
    except OSError:
        return {}
    for place in places:
        try:
            with open(os.path.join(folder, place, "information"), encoding="utf-8", errors="replace") as file:
                pairs = [line.partition(":") for line in file]
        except OSError:
            continue
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        if "?" not in facts.get("GPU UUID", "?") and "Device Minor" in facts:
            uuids[facts["Device Minor"]] = facts["GPU UUID"]
    return uuids


# -- AMD -----------------------------------------------------------------------------------------------------------


def _check_amd(facts: Facts, given: Sequence[str], root: str) -> DeviceFinding:
    from trainmaster.runtime import amdgpu  # few jobs need it

    if not amdgpu.has_driver(root):
        return DeviceFinding(warning="%s, but its kernel has no driver for ROCm's GPUs" % _was_given(facts, given))
    visible = len(amdgpu.gpus(root))
    if os.path.exists(os.path.join(root, "dev/kfd")):
        if visible >= len(facts.slot_ids):
            return DeviceFinding()
        why: List[str] = []
    else:
        visible, why = 0, ["no /dev/kfd"]
    if given:
        return _missing(facts, given, visible, [], why)
    return DeviceFinding(warning="%s, but the container sees %d" % (_was_given(facts, given), visible))


# -- sentences -----------------------------------------------------------------------------------------------------


def _was_given(facts: Facts, given: Sequence[str]) -> str:
    count = len(facts.slot_ids)
    listed = " (%s)" % ", ".join(given) if given else ""
    return "node %s was given %d GPU%s%s" % (facts.node_name, count, "" if count == 1 else "s", listed)


def _missing(
    facts: Facts, given: Sequence[str], visible: int, lost: Sequence[str], why: Sequence[str]
) -> DeviceFinding:
    text = "%s but the container sees %s" % (_was_given(facts, given), visible or "none")
    if lost:
        text += ": GPU %s %s missing" % (", ".join(lost), "is" if len(lost) == 1 else "are")
    if why:
        text += " (%s)" % "; ".join(why)
    return DeviceFinding(
        missing=text + "; nvidia-smi or rocm-smi and the kernel's log on that node should say why, and if all is well "
        "there, check how the container is given its devices"
    )
