"""Slot types that jobs ask for, shared by configuration, dispatchers and agents."""

from __future__ import annotations

import enum


class SlotType(enum.StrEnum):
    """Kind of a slot: a share of a node's CPUs, or one GPU of NVIDIA or AMD."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
