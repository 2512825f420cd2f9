"""`determined.errors`: what a trial class may catch or raise."""

from trainmaster.core.errors import CheckpointError as InvalidCheckpointException
from trainmaster.core.errors import InvalidExperiment as InvalidExperimentException
from trainmaster.core.errors import InvalidHP

__all__ = ["InvalidCheckpointException", "InvalidExperimentException", "InvalidHP"]
