"""How the ranks of a trial exchange gradients: by torch's DistributedDataParallel, by Horovod, or not at all."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any, Iterator, List

import torch

from trainmaster.core import DistributedContext
from trainmaster.core.distributed import single
from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.sharded import is_sharded


class Backend:
    """One process alone."""

    def connect(self) -> DistributedContext:
        """Connect to the other ranks."""
        return single()

    def device(self, distributed: DistributedContext) -> torch.device:
        """Return where this rank computes."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        device = torch.device("cuda", distributed.local_rank)
        torch.cuda.set_device(device)
        return device

    def wrap_model(self, model: torch.nn.Module, distributed: DistributedContext) -> torch.nn.Module:
        """Let all ranks train a model together."""
        return model

    def wrap_optimizer(self, optimizer: Any, models: List[torch.nn.Module], passes: int, compress: bool) -> Any:
        """Let all ranks step an optimizer together. `passes`: calls of `backward` for one step; `compress`: exchange in
        half precision."""
        return optimizer

    def synchronize(self, optimizer: Any) -> None:
        """Wait until the gradients of all ranks have arrived."""

    @contextlib.contextmanager
    def synchronized(self, optimizer: Any) -> Iterator[None]:
        """Step within this, after `synchronize`."""
        yield

    def begin(self, models: List[torch.nn.Module], optimizers: List[Any]) -> None:
        """Give all ranks the chief's state, before the first batch."""

    def close(self) -> None:
        """Leave the other ranks."""


class TorchBackend(Backend):
    """torch.distributed: NCCL on GPUs, gloo on CPUs."""

    def connect(self) -> DistributedContext:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return DistributedContext.from_environment()

    def wrap_model(self, model: torch.nn.Module, distributed: DistributedContext) -> torch.nn.Module:
        if is_sharded([model]) or not any(each.requires_grad for each in model.parameters()):
            return model  # DistributedDataParallel refuses it, and has nothing to do
        return _Parallel(model)

    def close(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


class HorovodBackend(Backend):
    """Horovod."""

    def __init__(self) -> None:
        self._hvd = importlib.import_module("horovod.torch")

    def connect(self) -> DistributedContext:
        self._hvd.init()
        return DistributedContext.from_horovod(self._hvd)

    def wrap_model(self, model: torch.nn.Module, distributed: DistributedContext) -> torch.nn.Module:
        if is_sharded([model]):
            raise InvalidExperiment("fully_shard() needs torch's own launcher, torch_distributed: this is Horovod's")
        return model

    def wrap_optimizer(self, optimizer: Any, models: List[torch.nn.Module], passes: int, compress: bool) -> Any:
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        named = [
            ("model%d.%s" % (number, name), each)
            for number, model in enumerate(models)
            for name, each in model.named_parameters()
            if id(each) in own
        ]
        compression = self._hvd.Compression.fp16 if compress else self._hvd.Compression.none
        return self._hvd.DistributedOptimizer(
            optimizer, named_parameters=named, backward_passes_per_step=passes, compression=compression
        )

    def synchronize(self, optimizer: Any) -> None:
        optimizer.synchronize()

    @contextlib.contextmanager
    def synchronized(self, optimizer: Any) -> Iterator[None]:
        with optimizer.skip_synchronize():
            yield

    def begin(self, models: List[torch.nn.Module], optimizers: List[Any]) -> None:
        for model in models:
            self._hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for optimizer in optimizers:
            self._hvd.broadcast_optimizer_state(optimizer, root_rank=0)


class _Parallel(torch.nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    """A model that all ranks train, with the attributes of the model in it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


def find_backend() -> Backend:
    """Choose by the variables that launchers set."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return Backend()
    return HorovodBackend() if "HOROVOD_RANK" in os.environ else TorchBackend()
