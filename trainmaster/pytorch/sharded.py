"""Saves models that FSDP2 (`fully_shard`) has divided among the ranks: each rank writes its own part, in the format of
`torch.distributed.checkpoint`, also while the training goes on. Any number of ranks reads it, one process included.

Needs torch 2.6 or newer.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

import torch

from trainmaster.core.errors import CheckpointError, InvalidExperiment

FOLDER = "sharded"  # in a checkpoint
_background: Optional[Any] = None  # the process group of writers in the background


def is_sharded(models: Iterable[Any]) -> bool:
    """Check whether `fully_shard` has divided one of these."""
    return any(hasattr(each, "to_local") for model in models for each in model.parameters())


class ShardedParts:
    """Models and their optimizers, by names.

    Raises:
        InvalidExperiment: An optimizer has parameters of several models, or of none.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module], optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
        self._models = dict(models)
        self._optimizers = dict(optimizers)
        self._owners = {name: self._owner(name, optimizer) for name, optimizer in optimizers.items()}

    def begin_to_save(self, folder: Path, *, background: bool) -> Callable[[], None]:
        """Save the state as it is now. All ranks call, with the checkpoint's folder, which they share.

        Args:
            folder: The checkpoint's.
            background: Copy the state, and write while the training goes on. Otherwise it is written before this
                returns.

        Returns:
            A function that waits until the parts of all ranks are there; it may be called in another thread.

        Raises:
            CheckpointError: It cannot be written.
        """
        from torch.distributed import checkpoint

        place = str(folder / FOLDER)
        if not background:
            with _explained("sharded checkpoint cannot be written"):
                checkpoint.save(self._states(), checkpoint_id=place, no_dist=not _several())
            return _nothing
        with _explained("sharded checkpoint cannot be written"):
            written = checkpoint.async_save(self._states(), checkpoint_id=place, process_group=_own_group())

        def wait() -> None:
            with _explained("sharded checkpoint cannot be written"):
                written.result()

        return wait

    def load(self, folder: Path) -> None:
        """Load what was saved, by as many ranks as it may have been. All ranks call.

        Raises:
            CheckpointError: It is none of sharded models, or it does not fit.
        """
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint import state_dict

        place = folder / FOLDER
        if not place.is_dir():
            raise CheckpointError(
                "the models are sharded, and those of the checkpoint in %s were not: it cannot be continued" % folder
            )
        with _explained("sharded checkpoint in %s does not fit" % folder):
            states = self._states()
            checkpoint.load(states, checkpoint_id=str(place), no_dist=not _several())
            for name, model in self._models.items():
                state_dict.set_model_state_dict(model, states["models"][name])
            for name, optimizer in self._optimizers.items():
                state_dict.set_optimizer_state_dict(self._owners[name], optimizer, states["optimizers"][name])

    def _states(self) -> Dict[str, Any]:
        from torch.distributed.checkpoint import state_dict

        return {
            "models": {name: state_dict.get_model_state_dict(model) for name, model in self._models.items()},
            "optimizers": {
                name: state_dict.get_optimizer_state_dict(self._owners[name], optimizer)
                for name, optimizer in self._optimizers.items()
            },
        }

    def _owner(self, name: str, optimizer: torch.optim.Optimizer) -> torch.nn.Module:
        wanted = {id(each) for group in optimizer.param_groups for each in group["params"]}
        owners: List[torch.nn.Module] = [
            model for model in self._models.values() if wanted <= {id(each) for each in model.parameters()}
        ]
        if not owners:
            raise InvalidExperiment(
                "%s has parameters that no sharded model has: give it those of one model, after fully_shard()" % name
            )
        return owners[0]


def sharded_parts(models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer] = ()) -> ShardedParts:
    """Name the parts of a trial by their numbers."""
    return ShardedParts(
        {"model%d" % number: model for number, model in enumerate(models)},
        {"optimizer%d" % number: optimizer for number, optimizer in enumerate(optimizers)},
    )


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what torch raises into CheckpointError, with its reason."""
    try:
        yield
    except BaseException as error:  # torch's own class of it is no `Exception`
        failures = getattr(error, "failures", None)
        if not failures and not isinstance(error, (RuntimeError, ValueError, KeyError, OSError, AssertionError)):
            raise
        reason = next(iter(failures.values()))[0] if failures else error
        raise CheckpointError("the %s: %s" % (what, str(reason).split("\n")[0])) from error


def _several() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _own_group() -> Any:
    """Return the group for what ranks say to each other while the training uses the others. All ranks call."""
    global _background
    if _background is None and _several():
        _background = torch.distributed.new_group(backend="gloo")
    return _background


def _nothing() -> None:
    return
