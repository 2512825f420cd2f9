"""Makes a DataLoader repeatable: which batches come, and what is drawn at random while they are made, depends on the
seed, the epoch and the batch's number alone.

A training that continues in the middle of an epoch then needs no state of samplers and workers, and the batches that it
has had are passed over without being read.
"""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

States = Tuple[Any, Any, torch.Tensor]  # of Python, numpy (None where it is not loaded) and torch

# Batches for which a sampler is asked in one go: to swap the random numbers costs as much as ten of them.
_DRAWN_AT_ONCE = 16


class Position:
    """Where the iteration of a loader begins: set `epoch` and `skip` before it does.

    Args:
        seed: The trial's.
        rank: This process among all. Ranks draw the same order, and other numbers while they make their batches of it.
    """

    def __init__(self, seed: int, rank: int = 0) -> None:
        self.seed = seed
        self.rank = rank
        self.epoch = 0
        self.skip = 0  # batches to pass over, in one iteration


def make_repeatable(loader: Any, position: Position) -> bool:
    """Change a loader in place. Calls after the first only replace its position.

    Args:
        loader: A DataLoader over a dataset with indices.
        position: Where its iterations begin; the caller keeps and changes it.

    Returns:
        False for what has no indices, which is left as it is: iterable datasets, loaders without batches, and objects
        that are no DataLoader.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    if loader.batch_sampler is None:
        return False
    if isinstance(loader.batch_sampler, _Batches):
        loader.batch_sampler.position = position
        return True
    changed = {
        "batch_sampler": _Batches(loader.batch_sampler, position),
        "dataset": _Items(loader.dataset),
        "collate_fn": _Collated(loader.collate_fn),
        # Each iteration draws a seed for its workers, which must not come out of the process's own random numbers.
        "generator": loader.generator or torch.Generator(),
    }
    # Accelerate's loaders have the attributes of another one, over which they iterate.
    for each in (loader, getattr(loader, "base_dataloader", None)):
        if each is not None:
            # A DataLoader refuses new values of these after it was made, for they would be too late for its iterators;
            # there is none yet.
            vars(each).update(changed)
    return True


def make_repeatable_by_number(loader: Any, seed: int, rank: int, done: int) -> None:
    """Let each batch of a loader be made under a seed of its number, whatever order its batch sampler has. For one
    iteration.

    Args:
        loader: A DataLoader with a batch sampler.
        seed: The trial's.
        rank: This process among all.
        done: Batches of this rank that were made before.
    """
    vars(loader).update(
        batch_sampler=_Numbered(loader.batch_sampler, mixed(seed, rank), done),
        dataset=_Items(loader.dataset),
        collate_fn=_Collated(loader.collate_fn),
    )


class _Numbered:
    """A batch sampler that gives each batch a seed."""

    def __init__(self, inner: Any, seed: int, done: int) -> None:
        self.inner = inner
        self.seed = seed
        self.done = done

    def __iter__(self) -> Iterator[_Batch]:
        for number, indices in enumerate(self.inner, self.done):
            batch = _Batch(indices)
            batch.seed = mixed(self.seed, number)
            yield batch

    def __len__(self) -> int:
        return len(self.inner)


class _Batch(List[Any]):
    """The indices of one batch, and the seed under which it is made."""

    seed = 0


class _Batches:
    """A batch sampler that draws from random numbers of its own, some batches ahead, and numbers its batches."""

    def __init__(self, inner: Any, position: Position) -> None:
        self.inner = inner
        self.position = position

    def __iter__(self) -> Iterator[_Batch]:
        epoch = mixed(self.position.seed, self.position.epoch)
        skip, self.position.skip = self.position.skip, 0
        _begin_epoch(self.inner, self.position.epoch, epoch)
        batches = iter(self.inner)
        own = _swapped(None, epoch)
        number = 0
        while True:
            outer = _swapped(own)
            try:
                drawn = list(itertools.islice(batches, _DRAWN_AT_ONCE))
            finally:
                own = _swapped(outer)
            if not drawn:
                return
            for indices in drawn:
                number += 1
                if number > skip:
                    batch = _Batch(indices)
                    batch.seed = mixed(mixed(epoch, self.position.rank), number)
                    yield batch

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)


class _Items(Dataset):  # type: ignore[misc]
    """A dataset that makes each batch under the batch's seed. `_Collated` ends that."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getitems__(self, indices: List[Any]) -> Any:
        _Collated.outer = None if get_worker_info() is not None else _states()
        _seed(getattr(indices, "seed", 0))
        try:
            many = getattr(self.inner, "__getitems__", None)
            return [self.inner[index] for index in indices] if many is None else many(list(indices))
        except BaseException:
            _Collated.restore()
            raise

    def __getitem__(self, index: Any) -> Any:
        return self.inner[index]

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)


class _Collated:
    """A collate function after which the process has its own random numbers back."""

    outer: Optional[States] = None  # those of the process, while a batch is made in it

    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self.inner = inner

    def __call__(self, items: Any) -> Any:
        try:
            return self.inner(items)
        finally:
            self.restore()

    @classmethod
    def restore(cls) -> None:
        if cls.outer is not None:
            outer, cls.outer = cls.outer, None
            _set_states(outer)

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)


def _begin_epoch(sampler: Any, epoch: int, seed: int) -> None:
    """Set the epoch of a batch sampler and of the samplers that it draws from, such as a DistributedSampler, and seed
    the generators that they have of their own."""
    while sampler is not None:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if isinstance(getattr(sampler, "generator", None), torch.Generator):
            sampler.generator.manual_seed(seed)
        sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)


def mixed(seed: int, number: int) -> int:
    """Mix a seed with a number into another seed of 63 bits (splitmix64): neighbours share nothing."""
    value = (seed + (number + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (value ^ (value >> 31)) >> 1


def _states() -> States:
    """Return the states of this process's random numbers on the CPU."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state(), torch.get_rng_state()


def _set_states(states: States) -> None:
    """Set what `_states` returned."""
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])
    torch.set_rng_state(states[2])


def _swapped(states: Optional[States], seed: Optional[int] = None) -> States:
    """Set `states` and return those that were set before; with `seed`, return the states of that seed instead, and
    change nothing."""
    before = _states()
    if seed is None:
        assert states is not None
        _set_states(states)
        return before
    _seed(seed)
    made = _states()
    _set_states(before)
    return made


def _seed(seed: int) -> None:
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would also seed each GPU


def _of_inner(wrapper: Any, name: str) -> Any:
    """Return what a wrapper has not itself. Before it has anything, while it is unpickled, that is nothing."""
    if "inner" not in vars(wrapper):
        raise AttributeError(name)
    return getattr(wrapper.inner, name)
