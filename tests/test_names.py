"""One word for one thing: a type name has one meaning, and every module says what it is for."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import trainmaster

PACKAGE = Path(trainmaster.__file__).parent
# Names of what is one thing in several layers: a row, a value or a resource of the SDK, a service, a
# state of the pure machine.
SAME_IN_LAYERS = {
    "Checkpoint", "Experiment", "Model", "ModelVersion", "QueuedJob", "Task", "Trial",
    "BindMount", "ContextFile", "Device", "ExitRecord", "ExitReport", "Gpu", "MasterUnreachable",
    "Experiments", "ExperimentTable", "Master", "Users",
}  # fmt: skip
# Events and decisions that the machines of experiments, trials and standalone tasks have in common.
OF_STATE_MACHINES = {"Activate", "AllocationEnded", "Created", "Finish", "Kill", "NotPossible", "Pause"}
# Each framework's door has a callback, a subclass of the framework's own; Determined names two trainers alike.
OF_DOORS = {"TrainmasterCallback", "Trainer"}
# Shapes of the API bear the names of Determined's messages; the client has the same ones.
OF_DETERMINED = ("master/api/", "core/sdk/", "master/http/messages.py", "client/wire.py", "client/view_records.py")


def test_a_type_name_stands_for_one_thing() -> None:
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(OF_DETERMINED):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(place)
    several = {name for name, places in found.items() if len(places) > 1}
    assert several == SAME_IN_LAYERS | OF_STATE_MACHINES | OF_DOORS


def test_every_module_has_docstring() -> None:
    silent = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if text.strip() and "migrations/versions" not in path.as_posix() and not ast.get_docstring(ast.parse(text)):
            silent.append(path.relative_to(PACKAGE).as_posix())
    assert silent == []
