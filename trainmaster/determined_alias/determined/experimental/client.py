"""`determined.experimental.client` in jobs: see `trainmaster.core.sdk`.

The functions are the methods of `Determined`, on one instance that the first call makes.
"""

from typing import Any, Optional

from trainmaster.core.sdk.checkpoints import Checkpoint
from trainmaster.core.sdk.determined import Determined
from trainmaster.core.sdk.experiments import Experiment, Trial
from trainmaster.core.sdk.metrics import TrainingMetrics, TrialMetrics, ValidationMetrics
from trainmaster.core.sdk.models import Model, ModelVersion
from trainmaster.core.sdk.words import (
    CheckpointOrderBy,
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    ExperimentOrderBy,
    ExperimentState,
    ModelOrderBy,
    ModelSortBy,
    OrderBy,
    TrialOrderBy,
    TrialSortBy,
    TrialState,
)

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentState",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialSortBy",
    "TrialState",
    "ValidationMetrics",
]

_determined: Optional[Determined] = None


def login(*arguments: Any, **named: Any) -> None:
    """Make the instance. Nobody has to call this."""
    global _determined
    _determined = Determined(*arguments, **named)


def logout() -> None:
    """Forget the instance; the job's session goes on."""
    global _determined
    _determined = None


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if not hasattr(Determined, name):
        raise AttributeError(
            "determined.experimental.client.%s is not part of trainmaster's SDK in jobs: put the package determined "
            "into the image, or call trainmaster.client outside of jobs" % name
        )

    def call(*arguments: Any, **named: Any) -> Any:
        if _determined is None:
            login()
        return getattr(_determined, name)(*arguments, **named)

    call.__name__ = name
    return call
