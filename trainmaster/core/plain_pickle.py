"""Reads pickles of names, numbers, lists and dicts, and refuses all others: reading a pickle runs what it says."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Dict

from trainmaster.core.errors import CheckpointError


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("it wants %s.%s" % (module, name))


def load_plain(path: Path) -> Dict[str, Any]:
    """Read a pickled dict.

    Raises:
        CheckpointError: It is no pickle, no dict, or holds other objects.
    """
    try:
        with path.open("rb") as file:
            value = _Plain(file).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, ValueError) as error:
        raise CheckpointError("%s is not what a training writes: %s" % (path, error)) from error
    if not isinstance(value, dict):
        raise CheckpointError("%s is not what a training writes: it holds a %s" % (path, type(value).__name__))
    return value
