"""`PyTorchTrialContext`: wraps a trial's models, optimizers and schedulers, and steps them."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch

from trainmaster.core import Context
from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.backend import Backend
from trainmaster.pytorch.lr_scheduler import LRScheduler
from trainmaster.pytorch.precision import autocast
from trainmaster.pytorch.sharded import is_sharded
from trainmaster.pytorch.trial_context import TrialContext


class PyTorchTrialContext(TrialContext):
    """What a `PyTorchTrial` gets when it is made. `determined.pytorch.init()` makes one.

    Attributes:
        models: Those that were wrapped.
        optimizers: Those that were wrapped.
        lr_schedulers: Those that were wrapped.
        experimental: Choices that few trials make.

    Args:
        core: The contexts of the job.
        backend: How ranks exchange gradients.
        aggregation_frequency: Batches whose gradients are added up for one optimizer step.
        trains: False for a context that only loads a trial.
        more: Those of every trial context.
    """

    def __init__(
        self, core: Context, backend: Backend, *, aggregation_frequency: int = 1, trains: bool = True, **more: Any
    ) -> None:
        super().__init__(core, backend.device(core.distributed), **more)
        self._backend = backend
        self._aggregation_frequency = aggregation_frequency
        self._trains = trains
        self.models: List[torch.nn.Module] = []
        self.optimizers: List[Any] = []
        self.lr_schedulers: List[LRScheduler] = []
        self.experimental = PyTorchExperimentalContext(self)
        self._averages: Dict[int, bool] = {}  # of each optimizer, by its id: whether aggregated gradients are averaged
        self._average_by_default = True
        self._compress_by_default = False
        self._scaler: Any = None
        self._auto_dtype: Optional[torch.dtype] = None

    # What is wrapped.

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """Take a model: it is moved to the device, trained by all ranks together, and saved. One that `fully_shard`
        (FSDP2) has divided among the ranks is trained and saved as it is.

        Returns:
            The model to train with.
        """
        if self._trains:
            model = self._backend.wrap_model(model.to(self.device), self.distributed)
            if self._auto_dtype is not None:
                autocast(model, self.device.type, self._auto_dtype)
        self.models.append(model)
        return model

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: Optional[bool] = None,
        average_aggregated_gradients: Optional[bool] = None,
    ) -> Any:
        """Take an optimizer of a wrapped model.

        Args:
            optimizer: Torch's.
            backward_passes_per_step: Calls of `backward` in one `train_batch`, for Horovod.
            fp16_compression: Whether Horovod exchanges gradients in half precision.
            average_aggregated_gradients: Whether gradients of several batches are averaged, not added up.

        Returns:
            The optimizer to step.

        Raises:
            InvalidExperiment: `backward_passes_per_step` is below 1.
        """
        if backward_passes_per_step < 1:
            raise InvalidExperiment("backward_passes_per_step must be at least 1, not %d" % backward_passes_per_step)
        if self._trains:
            optimizer = self._backend.wrap_optimizer(
                optimizer,
                self.models,
                backward_passes_per_step * self._aggregation_frequency,
                self._compress_by_default if fp16_compression is None else fp16_compression,
            )
        if average_aggregated_gradients is None:
            average_aggregated_gradients = self._average_by_default
        self._averages[id(optimizer)] = bool(average_aggregated_gradients)
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> Any:
        """Take a learning rate scheduler of a wrapped optimizer.

        Args:
            lr_scheduler: Torch's.
            step_mode: When it steps.
            frequency: Every how many of these times.

        Returns:
            The scheduler as it is.

        Raises:
            InvalidExperiment: Its optimizer was not wrapped, or it is a ReduceLROnPlateau, which needs a metric, and is
                not to be stepped by the trial itself.
        """
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        if isinstance(lr_scheduler, plateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise InvalidExperiment(
                "ReduceLROnPlateau steps by a metric: wrap it with LRScheduler.StepMode.MANUAL_STEP, and step it in "
                "the on_validation_end() of a callback"
            )
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and all(each is not optimizer for each in self.optimizers):
            raise InvalidExperiment(
                "the optimizer of %s is none that wrap_optimizer() returned" % type(lr_scheduler).__name__
            )
        self.lr_schedulers.append(LRScheduler(lr_scheduler, step_mode, frequency))
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Take a gradient scaler, which is saved with the rest. The trial scales, unscales and updates; it passes the
        scaler to `step_optimizer`.

        Raises:
            InvalidExperiment: There is one already, or models were wrapped before.
        """
        if self._scaler is not None:
            raise InvalidExperiment("wrap_scaler() or use_amp() was called twice")
        if self.models:
            raise InvalidExperiment("wrap_scaler() and use_amp() must be called before wrap_model()")
        self._scaler = scaler
        return scaler

    def configure_apex_amp(self, models: Any, optimizers: Any, enabled: Optional[bool] = True, **options: Any) -> Any:
        """Refuse: Apex's AMP is not maintained any more.

        Returns:
            Models and optimizers as they are, where `enabled` is false or nothing is trained.

        Raises:
            InvalidExperiment: Otherwise.
        """
        if not enabled or not self._trains:
            return models, optimizers
        raise InvalidExperiment(
            "Apex's AMP (%s) has been given up by its authors: use context.experimental.use_amp(), or torch.autocast "
            "and context.wrap_scaler()" % ", ".join(sorted(options) or ["configure_apex_amp"])
        )

    # What a batch does.

    def backward(
        self,
        loss: torch.Tensor,
        gradient: Optional[torch.Tensor] = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Compute gradients, with the arguments of `torch.Tensor.backward`. Ranks exchange them in the last batch
        before an optimizer step."""
        if self._scaler is not None and self._auto_dtype is not None:
            loss = self._scaler.scale(loss)
        with self._quiet():
            loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)

    def step_optimizer(
        self,
        optimizer: Any,
        clip_grads: Optional[Callable[[Any], Any]] = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Step an optimizer, if this batch is the last one of those that are aggregated.

        Args:
            optimizer: A wrapped one.
            clip_grads: Clips the gradients of the parameters that it gets.
            auto_zero_grads: Whether gradients are set to zero afterwards.
            scaler: The wrapped gradient scaler, where the trial scales itself.

        Raises:
            InvalidExperiment: The optimizer was not wrapped, or gradients of several batches are aggregated and not
                set to zero.
        """
        if id(optimizer) not in self._averages:
            raise InvalidExperiment("step_optimizer() got an optimizer that wrap_optimizer() did not return")
        if self._aggregation_frequency > 1 and not auto_zero_grads:
            raise InvalidExperiment("with an aggregation_frequency above 1, auto_zero_grads must be True")
        if not self._steps():
            return
        self._backend.synchronize(optimizer)
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if self._averages[id(optimizer)] and self._aggregation_frequency > 1:
            for each in parameters:
                if each.grad is not None:
                    each.grad.div_(self._aggregation_frequency)
        automatic = self._scaler if self._auto_dtype is not None else None
        if clip_grads is not None:
            if automatic is not None:
                automatic.unscale_(optimizer)
            clip_grads(parameters)
        scaler = scaler or automatic
        with self._backend.synchronized(optimizer):
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
        if auto_zero_grads:
            optimizer.zero_grad()

    def _steps(self) -> bool:
        """Whether optimizers step after this batch."""
        return not self._trains or (self.current_train_batch() + 1) % self._aggregation_frequency == 0

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Let ranks exchange no gradients before the last batch that is aggregated."""
        with contextlib.ExitStack() as stack:
            if self._trains and not self._steps():
                for model in self.models:
                    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
                        stack.enter_context(model.no_sync())
                    elif is_sharded([model]):
                        model.set_requires_gradient_sync(False)
                        stack.callback(model.set_requires_gradient_sync, True)
            yield


class PyTorchExperimentalContext:
    """Choices that few trials make; `context.experimental`."""

    def __init__(self, parent: PyTorchTrialContext) -> None:
        self._parent = parent
        self._any_loader = False
        self._saves_in_background = False
        self._auto_to_device = True

    def use_amp(self, dtype: torch.dtype = torch.float16) -> None:
        """Compute in mixed precision: models under autocast, gradients scaled. To be called before `wrap_model`.

        Args:
            dtype: `torch.float16`, on GPUs only, or `torch.bfloat16`, which needs no scaling.
        """
        scaled = dtype is torch.float16 and self._parent.device.type == "cuda"
        self._parent.wrap_scaler(_scaler(scaled))
        self._parent._auto_dtype = dtype

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow any `torch.utils.data.DataLoader`. The trial itself then shuffles, shares out and continues its
        data; torch's samplers and those in `determined.pytorch.samplers` help."""
        self._any_loader = True

    def save_in_background(self) -> None:
        """Write the checkpoints of sharded models while the training goes on. Ours: Determined has no such models.

        A checkpoint counts once it is written. The next one, and the end of the training, wait for that.
        """
        self._saves_in_background = True

    def disable_auto_to_device(self) -> None:
        """Leave batches where the loader made them. The trial calls `context.to_device` itself."""
        self._auto_to_device = False


def _scaler(enabled: bool) -> Any:
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)  # torch before 2.3
