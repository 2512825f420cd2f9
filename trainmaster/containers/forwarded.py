"""Environment variables that pass from a job into its container, with any container runtime. No others do."""

from __future__ import annotations

from dataclasses import dataclass


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
