"""Python SDK for a master: typed, synchronous, on the standard library alone.

    from trainmaster.client import connect

    master = connect()
    experiment = master.create_experiment("search.yaml", "code").wait()
    print(experiment.best_checkpoint().download("best"))

Answers of the master are immutable objects. Their methods call the master, and `reload()` returns the present state.
The names below are imported on first use, so that `det`, which is built on this package, starts quickly."""

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

_MODULES = {
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
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
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
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
