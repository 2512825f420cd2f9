"""Load and free memory of this job's GPUs: NVIDIA's by NVML, AMD's by /sys."""

from __future__ import annotations

import logging
import os
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from trainmaster.runtime import amdgpu
from trainmaster.runtime.facts import parse_devices

logger = logging.getLogger("trainmaster.core")

Reader = Callable[[], Dict[str, Dict[str, float]]]  # UUID -> metric -> value


def open_reader(environ: Mapping[str, str] = os.environ, root: str = "/") -> Reader:
    """Find the GPUs that this process may use; the returned function reads them, and finds none where there are
    none."""
    if amdgpu.has_driver(root):
        gpus = amdgpu.chosen(_named(environ, "ROCR_VISIBLE_DEVICES"), root)
        later = _named(environ, "HIP_VISIBLE_DEVICES")
        if later is not None:  # counts among what the first one leaves
            gpus = [gpus[int(name)] for name in later if name.isdigit() and int(name) < len(gpus)]
        if gpus:
            return lambda: {gpu.uuid: _of_amd(gpu) for gpu in gpus}
    return _nvidia(_named(environ, "CUDA_VISIBLE_DEVICES")) or dict


def _of_amd(gpu: amdgpu.Gpu) -> Dict[str, float]:
    values = {"gpu_util": amdgpu.used_percent(gpu), "gpu_free_memory": amdgpu.free_memory(gpu)}
    return {name: float(value) for name, value in values.items() if value is not None}


def _nvidia(named: Optional[Sequence[str]]) -> Optional[Reader]:
    try:
        from trainmaster.runtime import nvml  # a small image's Python may have no ctypes
    except ImportError:
        return None
    try:
        library = nvml.Nvml()
        gpus = nvml.chosen(library, named)
    except nvml.NvmlError as error:
        logger.debug("no NVIDIA GPU is measured: %s", error)
        return None

    def read() -> Dict[str, Dict[str, float]]:
        values: Dict[str, Dict[str, float]] = {}
        for gpu in gpus:
            for name, ask in (("gpu_util", library.used_percent), ("gpu_free_memory", library.free_memory)):
                try:
                    values.setdefault(gpu.uuid, {})[name] = float(ask(gpu))
                except nvml.NvmlError:  # not known of this GPU, or it has broken down
                    continue
        return values

    return read


def _named(environ: Mapping[str, str], variable: str) -> Optional[List[str]]:
    text = environ.get(variable)
    return None if text is None else parse_devices(text)
