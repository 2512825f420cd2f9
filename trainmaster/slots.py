"""The kinds of slots that jobs ask for: the one word that configuration, dispatchers and agents share."""

from __future__ import annotations

import enum


class SlotType(enum.StrEnum):
    """What a slot is: a share of a node's CPUs, or one GPU of NVIDIA or AMD."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
