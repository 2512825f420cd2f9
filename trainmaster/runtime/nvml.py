"""NVIDIA's GPUs as the driver's library NVML reports them (NVML API Reference Guide).

The library comes with the driver, also into containers, so that nothing need be installed in an image: not NVIDIA's
Python binding, nor `nvidia-smi`, which images may lack and which takes a process for every question.
"""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence, Tuple

from trainmaster.runtime.record import Record

LIBRARY = "libnvidia-ml.so.1"
_UUID_SIZE = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
_NO_PERMISSION = 4  # another job's GPU, where control groups hide it


class NvmlError(Exception):
    """NVML is missing, or a call failed; `code` is an nvmlReturn_t, 0 without a library."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Gpu(Record):
    """A GPU, or a part of one (Multi-Instance GPU), that this process may use."""

    uuid: str
    minor: Optional[int]  # of /dev/nvidia<minor>
    divided: bool  # into Multi-Instance GPU's parts: this whole cannot be used itself
    handle: Any  # nvmlDevice_t


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Nvml:
    """The loaded and initialised library. Raises NvmlError when there is none, or no driver behind it."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(str(error)) from None
        self._call("nvmlInit_v2")

    def gpus(self) -> Tuple[List[Gpu], List[str]]:
        """List the usable GPUs in NVML's order, and the errors of the others, those of other jobs left out."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        gpus: List[Gpu] = []
        broken: List[str] = []
        for index in range(count.value):
            try:
                gpus.append(self._gpu(index))
            except NvmlError as error:
                if error.code != _NO_PERMISSION:
                    broken.append("GPU %d: %s" % (index, error))
        return gpus, broken

    def find(self, uuid: str) -> Gpu:
        """Find the GPU, or the part of one, with this UUID. Raises NvmlError."""
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode("ascii", "replace"), ctypes.byref(handle))
        return Gpu(uuid, None, False, handle)

    def used_percent(self, gpu: Gpu) -> int:
        """Percent of the last sampling period (1/6 to 1 s) in which a kernel ran. Raises NvmlError, always for a
        part of a GPU."""
        utilization = _Utilization()
        self._call("nvmlDeviceGetUtilizationRates", gpu.handle, ctypes.byref(utilization))
        return int(utilization.gpu)

    def free_memory(self, gpu: Gpu) -> int:
        """Free memory in bytes. Raises NvmlError."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", gpu.handle, ctypes.byref(memory))
        return int(memory.free)

    def close(self) -> None:
        """Shut NVML down. Raises NvmlError."""
        self._call("nvmlShutdown")

    def _gpu(self, index: int) -> Gpu:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        uuid = ctypes.create_string_buffer(_UUID_SIZE)
        self._call("nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(_UUID_SIZE))
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        divided = self._knows("nvmlDeviceGetMigMode", handle, ctypes.byref(mode), ctypes.byref(pending)) and mode.value
        minor = ctypes.c_uint()
        known = self._knows("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        return Gpu(uuid.value.decode("ascii", "replace"), minor.value if known else None, bool(divided), handle)

    def _knows(self, name: str, *arguments: Any) -> bool:
        """Make a call that not every GPU or driver supports; whether it succeeded."""
        try:
            self._call(name, *arguments)
        except NvmlError:
            return False
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError("this driver's NVML has no %s" % name) from None
        code = int(function(*arguments))
        if code:
            raise NvmlError(self._words(code), code)

    def _words(self, code: int) -> str:
        words = self._library.nvmlErrorString
        words.restype = ctypes.c_char_p
        return (words(code) or b"error %d" % code).decode("ascii", "replace")


def chosen(nvml: Nvml, named: Optional[Sequence[str]]) -> List[Gpu]:
    """List the GPUs that a process may use: `named` are the entries of CUDA_VISIBLE_DEVICES, indices or UUIDs, None
    where it is not set. CUDA ends the list at the first entry that it does not know (CUDA C++ Programming Guide,
    "CUDA Environment Variables"). Raises NvmlError when nothing can be listed."""
    gpus, _ = nvml.gpus()
    if named is None:
        return gpus
    result: List[Gpu] = []
    for name in named:
        if name.isdigit():
            fitting = gpus[int(name) : int(name) + 1]
        elif name.startswith("MIG-"):
            try:
                fitting = [nvml.find(name)]
            except NvmlError:
                fitting = []
        else:
            fitting = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
        if len(fitting) != 1:
            break
        result += fitting
    return result
