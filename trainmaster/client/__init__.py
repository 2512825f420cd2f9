"""A master from Python: typed, synchronous, on the standard library alone.

    from trainmaster.client import connect

    master = connect()
    experiment = master.create_experiment("search.yaml", "code").wait()
    print(experiment.best_checkpoint().download("best"))

What a master tells comes as values that do not change; their verbs act on the master, and `reload()` looks again. The
names below are imported when they are used, so that `det`, which is built on this, starts at once.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs an import
if TYPE_CHECKING:
    from trainmaster.client.artifacts import Checkpoint, Model, ModelVersion
    from trainmaster.client.errors import (
        APIError,
        ClientError,
        FileFault,
        MasterUnreachable,
        NoSuchThing,
        NotAllowed,
        NotLoggedIn,
    )
    from trainmaster.client.experiment import Experiment, Trial
    from trainmaster.client.filters import Condition, column, hparam, metric
    from trainmaster.client.login import connect
    from trainmaster.client.master import Master
    from trainmaster.client.models import LogLine, MetricsReport, QueuedJob, StoryEvent

_HOMES = {
    "artifacts": ("Checkpoint", "Model", "ModelVersion"),
    "errors": (
        *("APIError", "ClientError", "FileFault", "MasterUnreachable", "NoSuchThing", "NotAllowed", "NotLoggedIn"),
    ),
    "experiment": ("Experiment", "Trial"),
    "filters": ("Condition", "column", "hparam", "metric"),
    "login": ("connect",),
    "master": ("Master",),
    "models": ("LogLine", "MetricsReport", "QueuedJob", "StoryEvent"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [
    "APIError",
    "Checkpoint",
    "ClientError",
    "Condition",
    "Experiment",
    "FileFault",
    "LogLine",
    "Master",
    "MasterUnreachable",
    "MetricsReport",
    "Model",
    "ModelVersion",
    "NoSuchThing",
    "NotAllowed",
    "NotLoggedIn",
    "QueuedJob",
    "StoryEvent",
    "Trial",
    "column",
    "connect",
    "hparam",
    "metric",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
