"""The Core API: what user code imports inside a job.

    from trainmaster import core

    with core.init() as context:
        for step in range(100):
            ...
            context.train.report_training_metrics(step, {"loss": loss})
            if context.preempt.should_preempt():
                return

The names and calls are those of `determined.core` 0.38.1, so that scripts written for it need only another
import (or none: in a job `import determined` finds this as well). Python 3.8 or newer, standard library only.
"""

from trainmaster.core.checkpoint import CheckpointContext, DownloadMode
from trainmaster.core.context import Context, init
from trainmaster.core.distributed import DistributedContext
from trainmaster.core.errors import CheckpointConflict, CheckpointError, CoreError, DistributedError, MasterAway
from trainmaster.core.hparams import apply_hparams
from trainmaster.core.info import ClusterInfo, RendezvousInfo, ResourcesInfo, TrialInfo, get_cluster_info
from trainmaster.core.preempt import PreemptContext, PreemptMode
from trainmaster.core.profiler import ProfilerContext
from trainmaster.core.searcher import SearcherContext, SearcherMode, SearcherOperation, Unit
from trainmaster.core.tensorboard import TensorboardMode
from trainmaster.core.train import EarlyExitReason, TrainContext

__all__ = [
    "CheckpointConflict",
    "CheckpointContext",
    "CheckpointError",
    "ClusterInfo",
    "Context",
    "CoreError",
    "DistributedContext",
    "DistributedError",
    "DownloadMode",
    "EarlyExitReason",
    "MasterAway",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "RendezvousInfo",
    "ResourcesInfo",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "TrialInfo",
    "Unit",
    "apply_hparams",
    "get_cluster_info",
    "init",
]
