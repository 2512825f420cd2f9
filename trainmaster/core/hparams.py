"""`apply_hparams()`: gives the experiment's hyperparameters to whatever holds a script's arguments."""

from __future__ import annotations

import logging
from argparse import Namespace
from typing import Any, Dict, Mapping, Optional

from trainmaster.core.info import TrialInfo, get_cluster_info

logger = logging.getLogger("trainmaster.core")


def apply_hparams(target: Any, **arguments: Any) -> Any:
    """Give this trial's hyperparameters to a script's arguments; they win over what stands there.

    Numbers take the type of the value they replace: YAML reads `1e-3` as text, and a `log` hyperparameter of 32 is a
    float. Where the target takes a `seed` and the experiment has no such hyperparameter, it is the trial's. Outside of
    a job nothing changes.

    Args:
        target: One of
            a dict: a copy with all hyperparameters, nested ones merged;
            an `argparse.Namespace` or a dataclass, such as `transformers.TrainingArguments`: a copy, in which those
            fields are changed that it has;
            a class or function, such as a Lightning module: a dict of those arguments that it takes, for
            `Model(**apply_hparams(Model, width=64))`.
        arguments: The script's own values, for a class or function.

    Returns:
        The copy, or the dict of arguments.

    Raises:
        TypeError: `target` is none of these, or `arguments` stand beside another target than a class or function.
    """
    info = get_cluster_info()
    trial = None if info is None else info.trial_info
    if callable(target) and not isinstance(target, Mapping):
        return _for_call(target, arguments, trial)
    if arguments:
        raise TypeError("apply_hparams() takes keyword arguments only for a class or function, not for %r" % (target,))
    if isinstance(target, Mapping):
        return _merged(target, {} if trial is None else _with_seed(target, trial.hparams, trial))
    if isinstance(target, Namespace):
        values = vars(target)
        return Namespace(**{**values, **_known(type(target).__name__, values, trial)})
    if getattr(type(target), "__dataclass_fields__", None) is not None:
        if trial is None:
            return target
        import dataclasses  # only where the caller has one

        values = {field.name: getattr(target, field.name) for field in dataclasses.fields(target) if field.init}
        # A new object: what a dataclass derives from its fields must be derived again.
        return dataclasses.replace(target, **_known(type(target).__name__, values, trial))
    raise TypeError(
        "apply_hparams() takes a dict, a Namespace of argparse, a dataclass, or a class or function that the arguments "
        "are for, not a %s" % type(target).__name__
    )


def _for_call(target: Any, arguments: Mapping[str, Any], trial: Optional[TrialInfo]) -> Dict[str, Any]:
    import inspect  # takes a while to import, and most scripts have no use for it

    values: Dict[str, Any] = {
        name: None if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    values.update(arguments)
    return {**arguments, **_known(getattr(target, "__name__", "the function"), values, trial)}


def _known(what: str, values: Mapping[str, Any], trial: Optional[TrialInfo]) -> Dict[str, Any]:
    """Return new values for those names of `values` that are hyperparameters. `what`: the target's name, for the
    log."""
    if trial is None:
        return {}
    known = {name: value for name, value in trial.hparams.items() if name in values}
    changes = {name: _fitting(values[name], value) for name, value in _with_seed(values, known, trial).items()}
    logger.info("%s takes from the experiment: %s", what, ", ".join(sorted(changes)) or "nothing")
    return changes


def _with_seed(values: Mapping[str, Any], hparams: Mapping[str, Any], trial: TrialInfo) -> Mapping[str, Any]:
    return {"seed": trial.trial_seed, **hparams} if "seed" in values else hparams


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Dict[str, Any]:
    return {**values, **{name: _fitting(values.get(name), value) for name, value in changes.items()}}


def _fitting(old: Any, new: Any) -> Any:
    """Return `new`, as a number of the type of `old` where it is one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _merged(old, new)
    if isinstance(old, (int, float)) and not isinstance(old, bool) and isinstance(new, str):
        try:
            new = float(new)
        except ValueError:
            return new  # a word that the framework knows, such as "auto"
    if isinstance(old, int) and not isinstance(old, bool) and isinstance(new, float) and new.is_integer():
        return int(new)
    if isinstance(old, float) and isinstance(new, int) and not isinstance(new, bool):
        return float(new)
    return new
