"""The harness of Determined 0.38.1, as published, in Slurm jobs: without a container, and in Apptainer's.

All experiments of a master begin together, with the first test that needs one: most of a test is waiting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.process.contract.conftest import Reference
from tests.process.launchers.test_torchrun import TORCH
from tests.support import published
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import apptainer_command, slurm_cluster, torch_image
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    wait_for,
)
from tests.support.reference import reference
from tests.support.slurm.site import make_slurm_master

__all__ = ["apptainer_command", "slurm_cluster", "torch_image"]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]
IN_CONTAINER = "/opt/published"  # where a container sees the package
PROFILED = ("cpu", "memory", "disk", "network")  # and gpu, where there is one
# Since 2.6 PyTorch refuses what this harness has saved, unless it is told that the file can be trusted.
VARIABLES = ("OMP_NUM_THREADS=1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1")
TWO_NODES: dict[str, Any] = {"resources": {"slots_per_trial": 2}, "slurm": {"slots_per_node": 1}}
SINGLE = {"name": "single", "metric": "error"}
HALVING = {
    "name": "adaptive_asha",
    "metric": "validation_loss",
    "mode": "aggressive",
    "time_metric": "batches",
    "max_time": 32,
    "divisor": 2,
    "max_rungs": 2,
    "max_trials": 3,
    "max_concurrent_trials": 1,
}
LEARNS_THEN_NOT = 4  # the seed whose first trial learns, while the other two do not
CORE_STEPS, BATCHES = 15, 20  # that a training without a set end makes once it goes on

# What the client finds of a trial; its last checkpoint is downloaded.
REPORTED = """
client.login()
trial = client.get_trial(int(sys.argv[1]))
checkpoints = sorted(trial.list_checkpoints(), key=lambda c: c.metadata["steps_completed"])
def rows(group): return [[m.steps_completed, m.metrics, m.batch_metrics] for m in trial.iter_metrics(group)]
answer({
    "training": rows("training"),
    "validation": rows("validation"),
    "profiled": {group: [m.metrics for m in trial.iter_metrics(group)] for group in sys.argv[3].split(",")},
    "saved": [[c.metadata["steps_completed"], c.state.value, sorted(c.resources)] for c in checkpoints],
    "downloaded": checkpoints[-1].download(sys.argv[2]),
})
"""

WEIGHTS = """
import torch
(state,) = torch.load(f"{sys.argv[1]}/state_dict.pth", weights_only=False)["models_state_dict"]
answer([value.item() for value in state.values()])
"""
LOADED = """
from determined import pytorch
path = client.get_experiment(int(sys.argv[1])).top_checkpoint().download(sys.argv[2])
trial = pytorch.load_trial_from_checkpoint_path(path, trial_kwargs={}, torch_load_kwargs={"weights_only": False})
answer([value.item() for value in trial.model.parameters()])
"""


@dataclass(frozen=True)
class Begun:
    """A master and the experiments that were begun on it."""

    master: MasterProcess
    numbers: dict[str, int]


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        return reference.site_packages()
    except reference.NoReference as reason:
        pytest.skip(f"no published package: {reason}")


@pytest.fixture(scope="module")
def training_environment(packages: Path) -> Path:
    if TORCH is None:
        pytest.skip("no Python with torch: set TRAINMASTER_TORCH_PYTHON")
    try:
        return reference.training_environment(Path(TORCH))
    except reference.NoReference as reason:
        pytest.skip(f"no published harness: {reason}")


@pytest.fixture(scope="module")
def bare(slurm_cluster: Cluster, apptainer_command: Path, training_environment: Path) -> Iterator[Begun]:
    """Without a container: what a user has installed is found by PATH."""
    variables = [f"PATH={training_environment}/bin:/usr/bin:/bin", *VARIABLES]
    common: dict[str, Any] = {"environment": {"environment_variables": variables}}
    configs = {
        "search": published.experiment(
            "python3 train.py",
            HALVING,
            # Those that do not learn have 8 s from the first rung to the last to hear that they must leave.
            hparams={
                "lr": {"type": "categorical", "vals": [0.3, 1e-6]},
                "batches": 32,
                "validate_every": 8,
                "pause": 0.5,
                "hasty_from": 0.1,
            },
            reproducibility={"experiment_seed": LEARNS_THEN_NOT},
            **common,
        ),
        "lines": published.experiment(
            "python3 -m determined.launch.torch_distributed python3 train.py",
            hparams={"lr": 0.3, "validate_every": 10, "pause": 0.1},
            profiling={"enabled": True},
            **TWO_NODES,
            **common,
        ),
        "core": published.experiment("python3 core_train.py", SINGLE, hparams={}, **common),
    }
    image = apptainer_command  # not used: jobs run on the node as it is
    yield from begun(make_slurm_master(make_folder(), slurm_cluster, image, image, container="none"), configs)


@pytest.fixture(scope="module")
def contained(
    slurm_cluster: Cluster, apptainer_command: Path, torch_image: Path, packages: Path, training_environment: Path
) -> Iterator[Begun]:
    """In containers of an image that has PyTorch; the package is mounted into them."""
    if packages.parent.name != "python3.11":
        pytest.skip(f"the image has Python 3.11, and the package is installed for {packages.parent.name}")
    expected = "/run/determined/info/trial.json:/run/determined/workdir/train.py:/determined_shared_fs"
    common: dict[str, Any] = {
        "environment": {"environment_variables": [f"PYTHONPATH={IN_CONTAINER}", f"EXPECTED={expected}", *VARIABLES]},
        "bind_mounts": [{"host_path": str(packages), "container_path": IN_CONTAINER, "read_only": True}],
    }

    def lines(*more: str) -> dict[str, Any]:
        environment = {"environment_variables": [*common["environment"]["environment_variables"], *more]}
        return published.experiment(
            "model:LineTrial",
            {"name": "single", "metric": "validation_loss", "max_length": {"batches": 20}},
            hparams={"lr": 0.3, "global_batch_size": 8},
            min_validation_period={"batches": 10},
            scheduling_unit=5,
            reproducibility={"experiment_seed": 7},
            **TWO_NODES,
            **{**common, "environment": environment},
        )

    configs = {
        "core": published.experiment("python3 core_train.py", SINGLE, hparams={}, **common),
        "lines": lines(),
        "ours": lines("TRAINMASTER_DETERMINED=ours"),
    }
    yield from begun(make_slurm_master(make_folder(), slurm_cluster, apptainer_command, torch_image), configs)


def begun(process: MasterProcess, configs: dict[str, dict[str, Any]]) -> Iterator[Begun]:
    process.start()
    master = process.client()
    context = files(train__py=published.FIT, model__py=published.MODEL, core_train__py=published.CORE)
    storage = {"type": "shared_fs", "host_path": str(process.folder / "checkpoints"), "save_trial_latest": 9}
    texts = {name: json.dumps({**config, "checkpoint_storage": storage}) for name, config in configs.items()}
    yield Begun(process, {name: master.create_experiment(text, context).id for name, text in texts.items()})
    process.clean_up()
    errors = process.errors()
    remove_folder(process.folder)
    assert errors == []


def pause_and_go_on(begun: Begun, name: str, after: int) -> int:
    """Pause the experiment after a number of steps, and activate it again; the steps it had made when it left."""
    master, number = begun.master.client(), begun.numbers[name]
    wait_for(lambda: any(trial.batches >= after for trial in master.trials(number)), f"step {after}", 120)
    trial = only_trial(master, number)
    master.pause(number)
    wait_for(lambda: master.task(trial.task_id)["allocations"][-1].get("endTime"), "the end of the attempt")
    assert master.experiment(number).state == "PAUSED"
    master.activate(number)
    return max(checkpoint.steps_completed for checkpoint in master.checkpoints(number))


def found_of(begun: Begun, name: str, environment: Path, folder: Path) -> dict[str, Any]:
    """What the published client finds of the only trial; the last checkpoint lies in `folder / "saved"` then."""
    client = Reference(environment, begun.master, folder / "config")
    number = only_trial(begun.master.client(), begun.numbers[name]).id
    found: dict[str, Any] = client.run(REPORTED, str(number), str(folder / "saved"), ",".join(PROFILED))
    return found


def weights(begun: Begun, environment: Path, folder: Path) -> list[float]:
    found: list[float] = Reference(environment, begun.master, folder / "config").run(WEIGHTS, str(folder / "saved"))
    return found


@pytest.mark.parametrize("way", ["bare", "contained"])
def test_a_script_of_the_core_api(way: str, packages: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    begun: Begun = request.getfixturevalue(way)
    master, number = begun.master.client(), begun.numbers["core"]
    left = pause_and_go_on(begun, "core", 6)
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts, trial.batches) == (2, 0, left + CORE_STEPS)
    assert f"going on from {left}" in log_text(master, trial.id)
    found = found_of(begun, "core", packages.parent.parent.parent, tmp_path)
    assert [row[:2] for row in found["training"]] == [[n, {"loss": 1 / n}] for n in range(1, trial.batches + 1)]
    assert [row[:2] for row in found["validation"]] == [[n, {"error": 1 / n}] for n in range(5, trial.batches + 1, 5)]
    assert found["saved"] == [
        [step, "STATE_COMPLETED", ["metadata.json", "state.json"]] for step in (5, left, trial.batches)
    ]
    assert (Path(found["downloaded"]) / "state.json").read_text() == str(trial.batches)
    names = ("cpu_util_simple", "memory_free", "disk_iops", "net_throughput_sent")
    for group, name in zip(PROFILED, names, strict=True):
        measured = [values for report in found["profiled"][group] for values in report.values()]
        assert len(measured) >= 4
        assert all(name in values for values in measured)


def test_early_stopping_ends_trials(bare: Begun, training_environment: Path, tmp_path: Path) -> None:
    master, number = bare.master.client(), bare.numbers["search"]
    ended_as(master, number, "COMPLETED")
    first, *others = master.trials(number)
    assert (first.hparams["lr"], first.batches, first.state) == (0.3, 32, "COMPLETED")
    assert len(others) == 2
    for trial in others:
        assert (trial.hparams["lr"], trial.state) == (1e-6, "COMPLETED")
        assert 16 <= trial.batches < 32
        assert "rung 1" in trial.reason
    client = Reference(training_environment, bare.master, tmp_path / "config")
    assert client.run(LOADED, str(number), str(tmp_path / "saved")) == pytest.approx([3, 1], abs=1)


def test_a_trial_class_on_two_nodes_in_containers(contained: Begun, training_environment: Path, tmp_path: Path) -> None:
    master, number = contained.master.client(), contained.numbers["lines"]
    ended_as(master, number, "COMPLETED")
    found = found_of(contained, "lines", training_environment, tmp_path)
    assert [row[0] for row in found["training"]] == [5, 10, 15, 20]
    assert [row[0] for row in found["validation"]] == [10, 20]
    assert all(metrics["workers"] == 2 for _, metrics, _ in found["training"])
    assert weights(contained, training_environment, tmp_path) == pytest.approx([3, 1], abs=0.7)
    events = (contained.master.folder / "checkpoints").glob(f"*/tensorboard/experiment/{number}/trial/*/events.out.*")
    assert list(events)


def test_our_own_trains_the_same_on_two_nodes(contained: Begun, training_environment: Path, tmp_path: Path) -> None:
    for name in ("lines", "ours"):
        ended_as(contained.master.client(), contained.numbers[name], "COMPLETED")
    theirs, ours = (found_of(contained, name, training_environment, tmp_path / name) for name in ("lines", "ours"))
    assert ours["training"] == theirs["training"]
    assert ours["validation"] == theirs["validation"]
    folders = (tmp_path / name for name in ("lines", "ours"))
    assert len({tuple(weights(contained, training_environment, folder)) for folder in folders}) == 1


def test_a_pytorch_trial_on_two_nodes(bare: Begun, training_environment: Path, tmp_path: Path) -> None:
    master, number = bare.master.client(), bare.numbers["lines"]
    left = pause_and_go_on(bare, "lines", 150)  # the profiler reports after 10 s
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts, trial.batches) == (2, 0, left + BATCHES)
    assert f"going on from {left}" in log_text(master, trial.id)
    assert {line.rank for line in master.logs(trial.id) if line.rank is not None} == {0, 1}
    found = found_of(bare, "lines", training_environment, tmp_path)
    assert [row[0] for row in found["training"]] == list(range(5, trial.batches + 1, 5))
    assert all(metrics["workers"] == 2 and len(batches) == 5 for _, metrics, batches in found["training"])
    assert [row[0] for row in found["validation"]] == sorted({*range(10, trial.batches, 10), trial.batches})
    assert [step for step, _, _ in found["saved"]] == [left, trial.batches]
    assert {"code/model.py", "state_dict.pth"} <= set(found["saved"][-1][2])
    assert all(found["profiled"].values())
    assert weights(bare, training_environment, tmp_path) == pytest.approx([3, 1], abs=0.1)
