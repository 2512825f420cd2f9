"""`TrainingState`: what a bare PyTorch loop must save to continue as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch

from trainmaster.core import Context
from trainmaster.core.errors import CheckpointError
from trainmaster.pytorch.data import Position, make_repeatable
from trainmaster.pytorch.random_numbers import all_states, set_all_states
from trainmaster.pytorch.sharded import FOLDER, ShardedParts, is_sharded

_FILE = "training.pt"
_FORMAT = "trainmaster.pytorch"


class TrainingState:
    """Model, optimizer and all else that has a `state_dict`, with the position in the data and the random numbers.

        state = TrainingState(loader=loader, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
        with core.init(distributed=...) as context:
            state.restore(context)
            for epoch in state.epochs(10):
                for batch in state.batches():
                    ...
                    state.steps += 1
                    if context.preempt.should_preempt():
                        state.save(context)
                        return

    Outside of a job `restore` and `save` do nothing. Of a model that `fully_shard` (FSDP2) has divided, each rank saves
    its part, and of its optimizer; any number of ranks continues from that.

    Args:
        loader: The training's DataLoader, which is made repeatable. One over a dataset without indices is read from
            its beginning, up to the batch that is to come.
        parts: Model, optimizer, scheduler, scaler, and whatever else has `state_dict` and `load_state_dict`.

    Raises:
        TypeError: A part has not both.
    """

    def __init__(self, *, loader: Any, **parts: Any) -> None:
        for name, part in parts.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise TypeError(
                    "TrainingState(%s=...) wants an object with state_dict() and load_state_dict(), not a %s"
                    % (name, type(part).__name__)
                )
        self._loader = loader
        self._parts = {name: _bare(part) for name, part in parts.items()}
        self._sharded: Optional[ShardedParts] = None
        if is_sharded(part for part in self._parts.values() if isinstance(part, torch.nn.Module)):
            self._divide()
        self._position: Optional[Position] = None  # in a job only
        self._random: Optional[Dict[str, Any]] = None
        self.epoch = 0
        self.batch = 0  # batches of this epoch that were yielded
        self.steps = 0  # optimizer steps since the start of the trial; the loop counts them

    def restore(self, context: Context) -> bool:
        """Load the checkpoint from which this trial continues. All ranks call.

        Returns:
            Whether there is one.

        Raises:
            CheckpointError: It is gone, or of other parts or another program.
        """
        info = context.info
        if info is None or info.trial_info is None:
            return False
        self._position = Position(info.trial.trial_seed, context.distributed.rank)
        if info.latest_checkpoint is None:
            return False
        with context.checkpoint.restore_path(info.latest_checkpoint) as folder:
            path = folder / _FILE
            if not path.is_file():
                raise CheckpointError("checkpoint %s was not written by TrainingState" % info.latest_checkpoint)
            stored = torch.load(str(path), map_location="cpu", weights_only=True)
            if self._sharded is None and (folder / FOLDER).is_dir():
                self._divide()
            if self._sharded is not None:
                self._sharded.load(folder)
        if set(stored["parts"]) != set(self._parts):
            raise CheckpointError(
                "checkpoint %s holds %s, and this script's TrainingState %s"
                % (info.latest_checkpoint, ", ".join(sorted(stored["parts"])), ", ".join(sorted(self._parts)))
            )
        for name, part in self._parts.items():
            try:
                part.load_state_dict(stored["parts"][name])
            except (RuntimeError, ValueError, KeyError) as error:
                raise CheckpointError(
                    "checkpoint %s does not fit this script's %s: %s" % (info.latest_checkpoint, name, error)
                ) from error
        self.epoch, self.batch, self.steps = stored["epoch"], stored["batch"], stored["steps"]
        if len(stored["random"]) == context.distributed.size:
            self._random = stored["random"][context.distributed.rank]
        return True

    def save(self, context: Context, background: bool = False) -> Optional[str]:
        """Store a checkpoint, after a step. All ranks call.

        Args:
            context: The script's.
            background: Write a sharded model while the training goes on. The checkpoint counts once it is written; the
                next one, and the end of the context, wait for that.

        Returns:
            Its uuid, on the chief; None on other ranks and outside of a job.

        Raises:
            ValueError: `background`, and no model is sharded.
            CheckpointError: It cannot be written, or one in the background could not be.
        """
        if background and self._sharded is None:
            raise ValueError("save(background=True) needs a model that is sharded with fully_shard()")
        if context.info is None or context.info.trial_info is None:
            return None
        metadata = {"steps_completed": self.steps, "framework": _FORMAT}
        random_numbers = context.distributed.gather(all_states())
        sharded = self._sharded
        if sharded is not None:

            def begin(folder: Path) -> Callable[[], None]:
                if random_numbers is not None:
                    self._write(folder, random_numbers)
                return sharded.begin_to_save(folder, background=background)

            uuid = context.checkpoint.store_in_background(metadata, begin)
            if not background:
                context.checkpoint.wait()
            return None if random_numbers is None else uuid
        if random_numbers is None:
            return None
        with context.checkpoint.store_path(metadata) as (folder, uuid):
            self._write(folder, random_numbers)
        return uuid

    def _divide(self) -> None:
        """Let all ranks save the models and their optimizers, and the chief what remains."""
        models = {name: part for name, part in self._parts.items() if isinstance(part, torch.nn.Module)}
        optimizers = {name: part for name, part in self._parts.items() if isinstance(part, torch.optim.Optimizer)}
        self._sharded = ShardedParts(models, optimizers)
        self._parts = {name: part for name, part in self._parts.items() if name not in {**models, **optimizers}}

    def _write(self, folder: Path, random_numbers: List[Any]) -> None:
        stored = {
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "random": random_numbers,
            "epoch": self.epoch,
            "batch": self.batch,
            "steps": self.steps,
        }
        torch.save(stored, str(folder / _FILE))

    def epochs(self, number: int) -> Iterator[int]:
        """Count the epochs, from the one that is to be continued."""
        while self.epoch < number:
            yield self.epoch
            self.epoch, self.batch = self.epoch + 1, 0

    def batches(self) -> Iterator[Any]:
        """Yield the batches of this epoch that are to come."""
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:  # a DistributedSampler
            set_epoch(self.epoch)
        skip = self.batch
        if self._position is not None and make_repeatable(self._loader, self._position):
            self._position.epoch, self._position.skip = self.epoch, skip
            skip = 0
        for number, batch in enumerate(self._loader):
            if number < skip:
                continue
            if self._random is not None:
                states, self._random = self._random, None
                set_all_states(states)
            self.batch += 1
            yield batch


def _bare(part: Any) -> Any:
    """Return the model in a wrapper for data-parallel training, so that a checkpoint fits any number of ranks."""
    return part.module if isinstance(part, torch.nn.parallel.DistributedDataParallel) else part
