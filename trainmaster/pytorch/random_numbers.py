"""The random numbers of a process as tensors and integers, which `torch.load(weights_only=True)` reads."""

from __future__ import annotations

import random
import sys
from typing import Any, Dict

import torch


def all_states() -> Dict[str, Any]:
    """Return the states of Python, numpy where it is loaded, torch, and the current GPU."""
    version, words, gauss = random.getstate()
    states: Dict[str, Any] = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, place, has_gauss, gauss = sys.modules["numpy"].random.get_state()
        states["numpy"] = [kind, [int(key) for key in keys], int(place), int(has_gauss), float(gauss)]
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_all_states(states: Dict[str, Any]) -> None:
    """Set what `all_states` returned. What this process has not, is passed over."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(states["torch"])
    if "numpy" in states and "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype="uint32"), *rest))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def same_states(one: Dict[str, Any], other: Dict[str, Any]) -> bool:
    """Check whether two processes would draw the same numbers on the CPU."""
    plain = all(one.get(name) == other.get(name) for name in ("python", "numpy"))
    return plain and torch.equal(one["torch"], other["torch"])
