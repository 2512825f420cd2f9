"""Samplers that repeat, share out, skip and shuffle what another one yields, in one reproducible order.

The order of a chain matters: shuffle, then repeat, then share out, then skip.
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import torch.utils.data as data


class RepeatSampler(data.Sampler):  # type: ignore[misc]
    """Yields from another sampler again and again. Its length is that of one pass."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self._sampler


class RepeatBatchSampler(data.BatchSampler):  # type: ignore[misc]
    """Yields from another batch sampler again and again. Its length is that of one pass."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.batch_sampler


class DistributedSampler(data.Sampler):  # type: ignore[misc]
    """Yields this rank's share of another sampler: every `num_workers`-th, beginning with the `rank`-th."""

    def __init__(self, sampler: Any, num_workers: int, rank: int) -> None:
        _check_share(num_workers, rank)
        self._sampler = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return _share(len(self._sampler), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[Any]:
        return _every(self._sampler, self._num_workers, self._rank)


class DistributedBatchSampler(data.BatchSampler):  # type: ignore[misc]
    """Yields this rank's share of another batch sampler.

    Raises:
        ValueError: `rank` is not one of `num_workers`.
    """

    def __init__(self, batch_sampler: Any, num_workers: int, rank: int) -> None:
        _check_share(num_workers, rank)
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.rank = rank

    def __len__(self) -> int:
        return _share(len(self.batch_sampler), self.num_workers, self.rank)

    def __iter__(self) -> Iterator[Any]:
        return _every(self.batch_sampler, self.num_workers, self.rank)


class SkipSampler(data.BatchSampler):  # type: ignore[misc]
    """Passes over the first records of another sampler. Its length is the other's: it skips in one pass only."""

    def __init__(self, sampler: Any, skip: int) -> None:
        self._sampler = sampler
        self._skip = skip

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return _after(self._sampler, self._skip)


class SkipBatchSampler(data.BatchSampler):  # type: ignore[misc]
    """Passes over the first batches of another batch sampler. Its length is the other's."""

    def __init__(self, batch_sampler: Any, skip: int) -> None:
        self.batch_sampler = batch_sampler
        self.skip = skip

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return _after(self.batch_sampler, self.skip)


class ReproducibleShuffleSampler(data.Sampler):  # type: ignore[misc]
    """Shuffles another sampler by a seed, in each pass anew."""

    def __init__(self, sampler: Any, seed: int) -> None:
        self._sampler = sampler
        self._rng = np.random.RandomState(seed)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        order = list(self._sampler)
        self._rng.shuffle(order)
        return iter(order)


class ReproducibleShuffleBatchSampler(data.Sampler):  # type: ignore[misc]
    """Shuffles the batches of another batch sampler by a seed. What is in a batch stays together: shuffling records is
    better where it can be had."""

    def __init__(self, batch_sampler: Any, seed: int) -> None:
        self._batch_sampler = batch_sampler
        self._rng = np.random.RandomState(seed)

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        order = list(self._batch_sampler)
        self._rng.shuffle(order)
        return iter(order)


def _check_share(num_workers: int, rank: int) -> None:
    if not 0 <= rank < num_workers:
        raise ValueError("rank must be from 0 to num_workers - 1 (%d), not %d" % (num_workers - 1, rank))


def _share(length: int, num_workers: int, rank: int) -> int:
    return length // num_workers + int(length % num_workers > rank)


def _every(items: Any, num_workers: int, rank: int) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number % num_workers == rank:
            yield item


def _after(items: Any, skip: int) -> Iterator[Any]:
    rest = iter(items)
    for _ in range(skip):
        if next(rest, rest) is rest:  # it has ended
            return
    yield from rest
