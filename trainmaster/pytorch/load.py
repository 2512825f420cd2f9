"""Makes a trial from its checkpoint, outside of a training: to predict with it, or to look into it."""

from __future__ import annotations

import importlib
import json
import logging
from pathlib import Path
from typing import Any, Dict, Optional, Union

from trainmaster.core.context import local
from trainmaster.core.errors import CheckpointError
from trainmaster.core.importing import import_from_path
from trainmaster.pytorch import files
from trainmaster.pytorch.backend import Backend
from trainmaster.pytorch.context import PyTorchTrialContext
from trainmaster.pytorch.sharded import FOLDER, sharded_parts

logger = logging.getLogger("trainmaster.pytorch")


class CheckpointLoadContext(PyTorchTrialContext):
    """The context of a trial that is made to load a checkpoint, and trains nothing.

    Args:
        hparams: The trial's hyperparameters.
        exp_conf: The experiment's configuration.
    """

    def __init__(self, hparams: Optional[Dict[str, Any]] = None, exp_conf: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(local(), Backend(), hparams=hparams, config=exp_conf, seed=0, trains=False)


def load_trial_from_checkpoint_path(
    path: Union[str, Path],
    trial_class: Optional[type] = None,
    trial_kwargs: Optional[Dict[str, Any]] = None,
    torch_load_kwargs: Optional[Dict[str, Any]] = None,
    **more: Any,
) -> Any:
    """Make the trial that wrote a checkpoint, with its models' parameters.

    Args:
        path: The checkpoint's folder, as `det checkpoint download` makes it.
        trial_class: The trial's class. Default: the one that the checkpoint names, from the code in it.
        trial_kwargs: More arguments of the class.
        torch_load_kwargs: Arguments of `torch.load`.
        more: The same, as older scripts give them.

    Returns:
        The trial.

    Raises:
        CheckpointError: The folder holds no checkpoint of a PyTorchTrial, its class cannot be imported, or it does not
            fit the class.
    """
    folder = Path(path)
    try:
        loading = json.loads((folder / files.LOADING).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError("%s is no checkpoint of a PyTorchTrial: %s" % (folder, error)) from error
    if loading.get("trial_type") != "PyTorchTrial":
        logger.warning("%s was written by a %s", folder, loading.get("trial_type"))
    context = CheckpointLoadContext(loading.get("hparams"), loading.get("experiment_config"))
    with import_from_path(folder / files.CODE):
        if trial_class is None:
            trial_class = _named(str(loading.get("trial_cls_spec")))
        trial = trial_class(context, **(trial_kwargs or {}))
    state = files.load_state(folder, **{**more, **(torch_load_kwargs or {})})
    if (folder / FOLDER).is_dir():
        sharded_parts(context.models).load(folder)
        return trial
    stored = files.several(state, "models_state_dict", "model_state_dict")
    if len(stored) != len(context.models):
        raise CheckpointError(
            "%s has %d models, and %s wraps %d" % (folder, len(stored), trial_class.__name__, len(context.models))
        )
    for number, model in enumerate(context.models):
        files.load_model(model, stored[number], "model %d of %s" % (number, trial_class.__name__))
    return trial


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise CheckpointError(
            "the class %s of this checkpoint cannot be imported (%s): pass trial_class=" % (name, error)
        ) from error
    return found
