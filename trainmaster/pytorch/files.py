"""The files of a trial's checkpoint, as Determined 0.38.1 writes them:

state_dict.pth      models, optimizers, schedulers, callbacks, scaler, the chief's random numbers
trial_state.pkl     how far the training is
load_data.json      from which class and hyperparameters the trial is made
code/               the user's files
ranks.pth           ours: the random numbers of all ranks, and those from which the data's order was drawn
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import numpy as np
import torch

from trainmaster.core.errors import CheckpointError
from trainmaster.core.plain_pickle import load_plain
from trainmaster.runtime.published import copy_of_files

logger = logging.getLogger("trainmaster.pytorch")

STATE, PROGRESS, LOADING, CODE, RANKS = "state_dict.pth", "trial_state.pkl", "load_data.json", "code", "ranks.pth"
_PLACES = (STATE, "determined/" + STATE, "pedl/" + STATE, "checkpoint.pt")  # of newer and older releases
# Prefixes that wrappers put before the names of a model's parameters.
_WRAPPERS = ("module.", "_orig_mod.")


def load_state(folder: Path, **options: Any) -> Dict[str, Any]:
    """Read `state_dict.pth`, without running what a pickle may say where its content allows that.

    Args:
        folder: The checkpoint.
        options: Of `torch.load`, instead of ours.

    Raises:
        CheckpointError: There is no such file, or it is no checkpoint of a trial.
    """
    for place in _PLACES:
        path = folder / place
        if path.is_file():
            state = load_file(path, **options)
            break
    else:
        raise CheckpointError("%s has no %s: it is no checkpoint of a PyTorchTrial" % (folder, STATE))
    if not isinstance(state, dict):
        raise CheckpointError("%s holds a %s: it is no checkpoint of a PyTorchTrial" % (path, type(state).__name__))
    return state


def load_progress(folder: Path) -> Optional[Dict[str, Any]]:
    """Read `trial_state.pkl`, which holds names and numbers and nothing else; None without one.

    Raises:
        CheckpointError: It holds something else.
    """
    for name in (PROGRESS, "workload_sequencer.pkl"):
        if (folder / name).is_file():
            try:
                return {str(key): int(value or 0) for key, value in load_plain(folder / name).items()}
            except (TypeError, ValueError) as error:
                raise CheckpointError("%s is not what a training writes: %s" % (folder / name, error)) from error
    return None


def load_ranks(folder: Path) -> Optional[Dict[str, Any]]:
    """Read `ranks.pth`; None in a checkpoint of another master."""
    path = folder / RANKS
    if not path.is_file():
        return None
    ranks: Dict[str, Any] = torch.load(str(path), map_location="cpu", weights_only=True)
    return ranks


def load_model(model: torch.nn.Module, stored: Mapping[str, Any], what: str) -> None:
    """Load a model's parameters, whichever wrappers it has now and had when they were saved.

    Raises:
        CheckpointError: They do not fit.
    """
    names = {_bare(name): name for name in model.state_dict()}
    renamed = {names.get(_bare(name), name): value for name, value in stored.items()}
    try:
        model.load_state_dict(renamed)
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError("the checkpoint does not fit %s: %s" % (what, error)) from error


def load_part(part: Any, stored: Any, what: str) -> None:
    """Load the state of an optimizer, a scheduler or another part.

    Raises:
        CheckpointError: It does not fit.
    """
    try:
        part.load_state_dict(stored)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError("the checkpoint does not fit %s: %s" % (what, error)) from error


def several(state: Mapping[str, Any], plural: str, singular: str) -> List[Any]:
    """Return the states of several parts; of one, as releases up to 0.12 have it."""
    if singular in state:
        return [state[singular]]
    found: List[Any] = state.get(plural) or []
    return found


def chiefs_random_numbers(local_rank: int) -> Dict[str, Any]:
    """Return the random numbers of this process, in the shape of `state_dict.pth`."""
    states: Dict[str, Any] = {
        "cpu_rng_state": torch.random.get_rng_state(),
        "np_rng_state": np.random.get_state(),
        "random_rng_state": random.getstate(),
    }
    if torch.cuda.is_available():
        states["gpu_rng_state"] = torch.cuda.get_rng_state(local_rank)
    return states


def set_chiefs_random_numbers(states: Mapping[str, Any], local_rank: int) -> None:
    """Set what `chiefs_random_numbers` returned."""
    torch.random.set_rng_state(states["cpu_rng_state"])
    np.random.set_state(states["np_rng_state"])
    random.setstate(_tuples(states["random_rng_state"]))
    if "gpu_rng_state" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["gpu_rng_state"], local_rank)


def write_progress(folder: Path, state: Mapping[str, int]) -> None:
    """Write `trial_state.pkl`."""
    with (folder / PROGRESS).open("wb") as file:
        pickle.dump(dict(state), file, protocol=4)


def write_loading(
    folder: Path,
    trial: Optional[type],
    config: Optional[Dict[str, Any]],
    hparams: Optional[Dict[str, Any]],
    is_trainer: bool,
    kind: str = "PyTorchTrial",
) -> None:
    """Write `load_data.json`.

    Args:
        folder: The checkpoint.
        trial: The trial's class, where the checkpoint names it.
        config: The experiment's configuration.
        hparams: The trial's.
        is_trainer: Whether the user's script made the trial, not its name as the entrypoint.
        kind: The base class.
    """
    loading: Dict[str, Any] = {"trial_type": kind, "experiment_config": config, "hparams": hparams}
    if trial is not None:
        loading["trial_cls_spec"] = "%s:%s" % (trial.__module__, trial.__qualname__)
    if is_trainer:
        loading["is_trainer"] = True
    (folder / LOADING).write_text(json.dumps(loading), encoding="utf-8")


def write_code(folder: Path, run_dir: Optional[Path]) -> None:
    """Copy the user's files into a checkpoint, as they were sent: the training may have written a lot beside them.

    Args:
        folder: The checkpoint.
        run_dir: The job's private folder on this node; None outside of a job, where nothing says which files they are.
    """
    if run_dir is None:
        return
    source = copy_of_files(str(run_dir))
    if os.path.isdir(source):
        shutil.copytree(source, str(folder / CODE), symlinks=True)


def load_file(path: Path, **options: Any) -> Any:
    """Read a file of `torch.save`, without running what a pickle may say where its content allows that. `options`: of
    `torch.load`, instead of ours."""
    if options:
        return torch.load(str(path), **{"map_location": "cpu", **options})
    with _numpy_allowed():
        try:
            return torch.load(str(path), map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            # The trial's own: it is in the storage of this experiment, whose code is about to run anyway.
            logger.info("%s holds more than weights, and is read with pickle: %s", path.name, str(error).split("\n")[0])
            return torch.load(str(path), map_location="cpu", weights_only=False)


def _numpy_allowed() -> Any:
    """Let `weights_only` read numpy's random numbers, which are an array of integers."""
    import contextlib

    if not hasattr(torch.serialization, "safe_globals"):
        return contextlib.nullcontext()
    core = getattr(np, "_core", None) or np.core
    allowed = [core.multiarray._reconstruct, np.ndarray, np.dtype, type(np.dtype("uint32"))]
    # Under both names that numpy's releases write.
    names = [(core.multiarray._reconstruct, "numpy.%s.multiarray._reconstruct" % part) for part in ("core", "_core")]
    try:
        return torch.serialization.safe_globals([*allowed, *names])
    except TypeError:  # torch before 2.6 takes no names
        return torch.serialization.safe_globals(allowed)


def _bare(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, (list, tuple)) else value
