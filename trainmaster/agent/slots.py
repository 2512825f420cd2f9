"""Finds the slots of this host: NVIDIA GPUs through NVML, otherwise shares of its CPUs."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from trainmaster.agent_protocol.messages import SlotFact
from trainmaster.slots import SlotType

SlotChoice = Literal["auto", "cpu", "cuda"]


class NoSlots(Exception):
    """The host does not have the slots that were asked for; the message says why."""


def find_slots(choice: SlotChoice, count: int | None) -> tuple[SlotFact, ...]:
    """Return the slots of this host.

    Args:
        choice: `auto` takes GPUs where there are any.
        count: how many; None takes all GPUs, or a CPU slot for each processor.

    Raises NoSlots.
    """
    if choice == "cpu":
        return _cpus(count)
    gpus, why = _gpus()
    if not gpus:
        if choice == "cuda":
            raise NoSlots(f"There is no NVIDIA GPU that can be used: {why}.")
        return _cpus(count)
    if count is not None and count > len(gpus):
        raise NoSlots(f"--slots {count}: there are {len(gpus)} NVIDIA GPUs here.")
    return gpus[:count]


def _cpus(count: int | None) -> tuple[SlotFact, ...]:
    name = _processor()
    total = count if count is not None else os.cpu_count() or 1
    return tuple(SlotFact(id=i, type=SlotType.CPU, name=name, uuid="") for i in range(total))


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()[:256]
    return platform.machine()


def _gpus() -> tuple[tuple[SlotFact, ...], str]:
    """Return the GPUs, or why there are none."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return (), "nvidia-ml-py is not installed (pip install 'trainmaster[agent]')"
    try:
        with _session(pynvml):
            return tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())), "the driver lists none"
    except pynvml.NVMLError as error:
        return (), f"NVIDIA's driver reports: {error}"


@contextlib.contextmanager
def _session(pynvml: Any) -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int) -> SlotFact:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return SlotFact(
        id=index,
        type=SlotType.CUDA,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
    )


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
