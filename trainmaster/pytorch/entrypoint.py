"""`python3 -m trainmaster.pytorch.entrypoint MODULE:CLASS`: trains a trial class that an experiment names, as
`entrypoint: model_def:Trial` and `--trial model_def:Trial` do.

What `Trainer.fit` gets from a script comes out of the experiment's configuration here.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from typing import Any, Dict, List, Optional

from trainmaster import core
from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.trainer import BaseTrainer, Trainer, init
from trainmaster.pytorch.trial import PyTorchTrial
from trainmaster.pytorch.units import Batch, from_section

logger = logging.getLogger("trainmaster.pytorch")

USAGE = "usage: python3 -m trainmaster.pytorch.entrypoint MODULE:CLASS"


def main(arguments: List[str]) -> int:
    """Train; returns the process's status."""
    if len(arguments) != 1 or ":" not in arguments[0]:
        print(USAGE, file=sys.stderr)
        return 64
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(name)s: %(message)s")
    info = core.get_cluster_info()
    if info is None or info.trial_info is None:
        print("a trial class trains in a job; outside of one, call Trainer.fit() in a script", file=sys.stderr)
        return 64
    try:
        trial_class = find_class(arguments[0])
    except InvalidExperiment as error:
        print("%s" % error, file=sys.stderr)
        return 1
    train(trial_class, info.trial._config, info.trial.hparams, info.latest_checkpoint)
    return 0


def find_class(name: str) -> type:
    """Import a trial class.

    Args:
        name: `MODULE:CLASS`; the module is looked for in the working folder first.

    Raises:
        InvalidExperiment: The module is not there or has no such class, or the class is no trial, or lacks a method.
    """
    module_name, _, path = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise  # a module that the user's code imports
        raise InvalidExperiment(
            "the entrypoint %s names the module %s, and the experiment's files have no %s.py"
            % (name, module_name, module_name.replace(".", "/"))
        ) from None
    module = found
    for part in path.split("."):
        if not hasattr(found, part):
            classes = [each for each, value in vars(module).items() if _is_trial(value)]
            raise InvalidExperiment(
                "the entrypoint %s names the class %s, and %s defines %s"
                % (name, path, module.__file__, "the trials " + ", ".join(sorted(classes)) if classes else "no trial")
            )
        found = getattr(found, part)
    if not _is_trial(found):
        raise InvalidExperiment(
            "the entrypoint %s names %r, which is no subclass of PyTorchTrial or DeepSpeedTrial" % (name, found)
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InvalidExperiment(
            "%s (%s, line %d) lacks %s: a trial must define it"
            % (path, inspect.getsourcefile(found), inspect.getsourcelines(found)[1], "(), ".join(missing) + "()")
        )
    trial_class: type = found
    return trial_class


def train(trial_class: Any, config: Dict[str, Any], hparams: Dict[str, Any], latest: Optional[str]) -> None:
    """Train a class as the experiment's configuration says.

    Args:
        trial_class: A PyTorchTrial or DeepSpeedTrial.
        config: The experiment's configuration, with all defaults.
        hparams: The trial's.
        latest: The uuid of the checkpoint to continue from.
    """
    if not issubclass(trial_class, PyTorchTrial):
        from trainmaster.pytorch import deepspeed

        with deepspeed.init(hparams=hparams, exp_conf=config) as engines:
            _fit(deepspeed.Trainer(trial_class(engines), engines), config, hparams, latest)
        return
    optimizations = config.get("optimizations") or {}
    with init(
        hparams=hparams, exp_conf=config, aggregation_frequency=int(optimizations.get("aggregation_frequency") or 1)
    ) as context:
        context._average_by_default = bool(optimizations.get("average_aggregated_gradients", True))
        context._compress_by_default = bool(optimizations.get("gradient_compression", False))
        trainer = Trainer(trial_class(context), context)
        trainer._is_trainer = False
        _fit(trainer, config, hparams, latest)


def _fit(trainer: BaseTrainer, config: Dict[str, Any], hparams: Dict[str, Any], latest: Optional[str]) -> None:
    batch_size = hparams.get("global_batch_size")
    trainer.fit(
        checkpoint_period=from_section(config.get("min_checkpoint_period") or {"batches": 0}, batch_size),
        validation_period=from_section(config.get("min_validation_period") or {"batches": 0}, batch_size),
        reporting_period=Batch(int(config.get("scheduling_unit") or 100)),
        checkpoint_policy=config.get("checkpoint_policy") or "best",
        latest_checkpoint=latest,
        step_zero_validation=bool(config.get("perform_initial_validation")),
        profiling_enabled=bool((config.get("profiling") or {}).get("enabled")),
    )


def _is_trial(value: Any) -> bool:
    kinds = [PyTorchTrial]
    if "trainmaster.pytorch.deepspeed" in sys.modules:  # the module of a DeepSpeedTrial has imported it
        kinds.append(sys.modules["trainmaster.pytorch.deepspeed"].DeepSpeedTrial)
    return isinstance(value, type) and issubclass(value, tuple(kinds)) and value not in kinds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
