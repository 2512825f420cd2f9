"""Saves the random numbers of a process in a checkpoint of Keras, and brings them back.

Those of Keras's own layers are variables of the model. TensorFlow's are not to be had: its operations keep them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import keras
import numpy as np

_FILE, _TORCH = "random.json", "random.pt"


def save(folder: Path) -> None:
    """Write the states of Python, numpy and, on its backend, torch."""
    kind, keys, place, has_gauss, gauss = np.random.get_state()
    states = {
        "python": random.getstate(),
        "numpy": [kind, [int(key) for key in keys], int(place), int(has_gauss), float(gauss)],
    }
    (folder / _FILE).write_text(json.dumps(states), encoding="utf-8")
    if keras.backend.backend() == "torch":
        import torch

        from trainmaster.pytorch.random_numbers import all_states

        torch.save(all_states(), str(folder / _TORCH))


def restore(folder: Path) -> None:
    """Set what `save` has written."""
    states = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype="uint32"), *rest))
    if keras.backend.backend() == "torch":
        import torch

        from trainmaster.pytorch.random_numbers import set_all_states

        set_all_states(torch.load(str(folder / _TORCH), map_location="cpu", weights_only=True))
