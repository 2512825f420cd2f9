"""PyTorch in a job of trainmaster: `PyTorchTrial` and its `Trainer`, with the interface of `determined.pytorch` 0.38.1,
and `TrainingState`, which saves and restores a bare loop.

Imports torch from the image.
"""

from trainmaster.pytorch import samplers
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.context import PyTorchExperimentalContext, PyTorchTrialContext
from trainmaster.pytorch.load import CheckpointLoadContext, load_trial_from_checkpoint_path
from trainmaster.pytorch.loader import DataLoader, TorchData, adapt_batch_sampler, data_length, to_device
from trainmaster.pytorch.lr_scheduler import LRScheduler
from trainmaster.pytorch.reducers import MetricReducer, Reducer
from trainmaster.pytorch.state import TrainingState
from trainmaster.pytorch.trainer import Trainer, init
from trainmaster.pytorch.trial import PyTorchTrial
from trainmaster.pytorch.units import Batch, Epoch, TrainUnit

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "TrainingState",
    "adapt_batch_sampler",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]
