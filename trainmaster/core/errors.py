"""What core raises.

    CoreError
    |-- DistributedError       a collective call failed: another rank has gone, or called something else
    |-- CheckpointError        a checkpoint cannot be saved or restored as asked
    |   |-- CheckpointConflict ranks brought different files or metadata under one name
    |   `-- UnusableStorage    the storage cannot work as it is configured: the trial is not tried again
    |-- MasterAway             a question that only the master can answer, and it cannot be asked
    |-- InvalidExperiment      a trial class that cannot be trained as it is written
    `-- InvalidHP              raised by a trial whose hyperparameters are of no use: the search goes on without it

Wrong arguments raise ValueError, calls from the wrong rank RuntimeError, as in Determined.
"""

from __future__ import annotations


class CoreError(Exception):
    """Base class of core's errors, wrong arguments aside."""


class DistributedError(CoreError):
    """A collective call failed."""


class CheckpointError(CoreError):
    """A checkpoint cannot be saved or restored as asked."""


class CheckpointConflict(CheckpointError):
    """Ranks have different files, or different metadata, under one name."""


class UnusableStorage(CheckpointError):
    """The checkpoint storage cannot work as it is configured. The master knows this name, and tries no trial again."""


class MasterAway(CoreError):
    """A question that only the master can answer, and the master cannot be reached."""


class InvalidExperiment(CoreError):
    """A trial class cannot be trained as it is written."""


class InvalidHP(CoreError):
    """The trial's hyperparameters are of no use. A trial raises it; the search goes on without this trial."""
