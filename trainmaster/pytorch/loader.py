"""`DataLoader`: a trial's data, which the training loop repeats, shares out among the ranks, and continues.

Its arguments are those of torch's loader, which is made when the rank and the place to continue at are known.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Type, Union

import numpy as np
import torch
import torch.utils.data as data

from trainmaster.pytorch import samplers
from trainmaster.pytorch.data import make_repeatable_by_number
from trainmaster.pytorch.random_numbers import all_states, same_states, set_all_states

logger = logging.getLogger("trainmaster.pytorch")

TorchData = Union[Dict[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]
States = Dict[str, Any]

_KEPT = 8  # epochs whose order can be drawn again


class DataLoader:
    """Takes the place of `torch.utils.data.DataLoader` in a trial.

    Args:
        dataset: One with indices.
        batch_size: Records in a batch of one rank.
        shuffle: Whether the order is drawn anew for each epoch.
        sampler: Yields indices, instead of `shuffle`.
        batch_sampler: Yields lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        drop_last: Whether an incomplete last batch is left out.
        generator: Of the shuffling.
        options: All other arguments of torch's loader: `num_workers`, `collate_fn`, `pin_memory`, `timeout`,
            `worker_init_fn`, `multiprocessing_context`, `prefetch_factor`, `persistent_workers`.

    Raises:
        ValueError: The dataset has no indices, there are no batches, or arguments contradict each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        **options: Any,
    ) -> None:
        if isinstance(dataset, data.IterableDataset):
            raise ValueError(
                "%s has no indices, so that determined.pytorch.DataLoader cannot shuffle, share out and continue it: "
                "return a torch.utils.data.DataLoader that does all of this itself, and call "
                "context.experimental.disable_dataset_reproducibility_checks()" % type(dataset).__name__
            )
        if batch_sampler is None and batch_size is None:
            raise ValueError("determined.pytorch.DataLoader needs a batch_size or a batch_sampler")
        # Torch's own checks, and its choice of samplers.
        template = data.DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            **options,
        )
        self.dataset = dataset
        self.batch_size = template.batch_size
        self.drop_last = template.drop_last
        self.sampler = template.sampler
        self.batch_sampler = template.batch_sampler
        self.collate_fn = template.collate_fn
        self.num_workers = num_workers
        self.generator = generator
        self._options = {
            "num_workers": num_workers,
            "collate_fn": template.collate_fn,
            "pin_memory": pin_memory,
            "timeout": timeout,
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context,
            "generator": generator,
            **options,
        }

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> data.DataLoader:
        """Make torch's loader.

        Args:
            repeat: Whether the data come again and again.
            skip: Batches of this rank to pass over.
            num_replicas: Ranks.
            rank: This one.
        """
        chain = adapt_batch_sampler(self.batch_sampler, repeat, skip, num_replicas, rank)
        return data.DataLoader(self.dataset, batch_sampler=chain, **self._options)

    def for_training(self, order: TrainingOrder, skip: int, num_replicas: int, rank: int, seed: int) -> data.DataLoader:
        """Make torch's loader for a training that continues exactly.

        Args:
            order: Yields this loader's batches, again and again.
            skip: Batches of this rank to pass over.
            num_replicas: Ranks.
            rank: This one.
            seed: The trial's.
        """
        chain = adapt_batch_sampler(order, False, skip, num_replicas, rank)
        loader = data.DataLoader(self.dataset, batch_sampler=chain, **self._options)
        if self.num_workers:
            # What workers draw at random while they make a batch must not depend on the batches that they made before.
            make_repeatable_by_number(loader, seed, rank, skip)
        return loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_data_loader())

    def __len__(self) -> int:
        return len(self.batch_sampler)


class TrainingOrder(samplers.RepeatBatchSampler):
    """Repeats a batch sampler, and remembers the random numbers from which each epoch's order was drawn, so that
    another process can draw it again.

    The order comes out of the process's own random numbers. Those of several ranks diverge as soon as one has a batch
    of another size. The chief's count then, where all ranks draw after the same batch; where they do not, because an
    epoch has no multiple of their number, all draw from a copy that nobody else uses.

    Args:
        batch_sampler: The trial's own.
        size: Ranks.
        broadcast: Returns the chief's value on all ranks; None where not all of them draw.
        known: What `drawn` was when the checkpoint was saved from which the training continues.
        begun: Epochs that were begun before, whose numbers are not drawn again.
    """

    def __init__(
        self,
        batch_sampler: Any,
        size: int,
        broadcast: Optional[Callable[[States], States]],
        known: Dict[int, States],
        begun: int,
    ) -> None:
        super().__init__(batch_sampler)
        self._broadcast = broadcast if size > 1 and len(batch_sampler) % size == 0 else None
        self._apart = size > 1 and self._broadcast is None
        self._own: Optional[States] = None
        self._known = known
        self._begun = begun
        self.drawn: Dict[int, States] = dict(known)

    def __iter__(self) -> Iterator[Any]:
        epoch = 0
        while True:
            batches = iter(self.batch_sampler)
            outer = all_states()
            source = self._source(epoch, outer)
            if source is not outer:
                set_all_states(source)
            # Workers are given batches ahead, of the next epoch or even of those behind it.
            self.drawn = {number: states for number, states in self.drawn.items() if number > epoch - _KEPT}
            self.drawn[epoch] = source
            first = next(batches, None)  # here torch's samplers draw the order of an epoch
            if self._apart:
                self._own = all_states()
            if source is not outer or epoch < self._begun:
                set_all_states(outer)
            if first is None:
                raise ValueError("the training data are empty")
            yield first
            yield from batches
            epoch += 1

    def _source(self, epoch: int, outer: States) -> States:
        """Return the random numbers from which an epoch's order is drawn: this process's own, `outer`, or others."""
        if epoch in self._known:
            return self._known[epoch]
        if self._apart:
            return self._own or outer
        if self._broadcast is not None and epoch >= self._begun:
            chiefs = self._broadcast(outer)
            return outer if same_states(chiefs, outer) else chiefs
        return outer


def adapt_batch_sampler(
    batch_sampler: Any, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> Any:
    """Let a batch sampler repeat, share out its batches and skip.

    Args:
        batch_sampler: Torch's, or another one.
        repeat: Whether it begins again at its end.
        skip: Batches of this rank to pass over.
        num_replicas: Ranks.
        rank: This one.
    """
    if repeat:
        batch_sampler = samplers.RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = samplers.DistributedBatchSampler(batch_sampler, num_replicas, rank)
    # Last: what is skipped are batches of this rank.
    return samplers.SkipBatchSampler(batch_sampler, skip) if skip > 0 else batch_sampler


def data_length(batch: Any) -> int:
    """Return the number of records in a batch: the length of its first array.

    Raises:
        ValueError: A dict or list without anything in it.
        TypeError: A type that is none of array, tensor, dict, list and tuple.
    """
    if isinstance(batch, (np.ndarray, torch.Tensor)):
        return len(batch)
    if isinstance(batch, (dict, list, tuple)):
        if not batch:
            raise ValueError("a batch is an empty %s: it must hold at least one array" % type(batch).__name__)
        return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])
    raise TypeError("a batch is a %s: override get_batch_length() to count its records" % type(batch).__name__)


def to_device(batch: Any, device: torch.device, warned_types: Optional[Set[Type[Any]]] = None) -> Any:
    """Move a batch to a device: tensors, arrays of numbers, and what else has a method `to`, in dicts, lists and
    tuples. Anything else stays where it is, with one warning for each type.

    Args:
        batch: The batch.
        device: Where to.
        warned_types: The types that were warned of; added to.
    """
    warned = set() if warned_types is None else warned_types
    if isinstance(batch, dict):
        return {name: to_device(value, device, warned) for name, value in batch.items()}
    if isinstance(batch, list):
        return [to_device(value, device, warned) for value in batch]
    if isinstance(batch, tuple):
        return tuple(to_device(value, device, warned) for value in batch)
    if isinstance(batch, np.ndarray) and batch.dtype.kind in "fciub":
        return torch.from_numpy(batch).to(device)
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if type(batch) not in warned:
        warned.add(type(batch))
        logger.warning("a %s in a batch cannot be moved to %s", type(batch).__name__, device)
    return batch
