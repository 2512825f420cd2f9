"""Every framework on real Slurm: the published examples, and sums over all workers of two nodes."""

from __future__ import annotations

import pytest
import yaml

from tests.support.cluster.slurm import (
    apptainer_command,
    frameworks_image,
    horovod_image,
    python_image,
    slurm_cluster,
    torch_image,
)
from tests.support.frameworks import (
    EXAMPLES,
    OF_EXAMPLES,
    OF_SUMS,
    Training,
    begin_endless,
    begin_example,
    begin_sum,
    check_record,
    check_sum,
    image_of,
)
from tests.support.master import MasterProcess, ended_as, log_text, only_trial, validations, wait_for
from tests.support.slurm.site import slurm_master
from trainmaster.client.master import Master

__all__ = [
    "apptainer_command",
    "frameworks_image",
    "horovod_image",
    "python_image",
    "slurm_cluster",
    "slurm_master",
    "torch_image",
]

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]  # an image may have to be built


# One of each way to start workers, and one with a door. digits-ddp continues in test_slurm.py; doors, trial classes and
# bare loops continue with the same weights in tests/process/frameworks.
GO_ON = [
    training
    for training in OF_EXAMPLES
    if training.name in ("transformers", "deepspeed", "horovod", "mpi", "scikit-learn")
]


@pytest.fixture(scope="module")
def begun(slurm_master: MasterProcess, request: pytest.FixtureRequest) -> dict[str, int]:
    """The experiments of all examples that are asked for, begun together: most of a job is waiting."""
    items = [item.nodeid for item in request.session.items if "an_example_trains[" in item.nodeid]
    asked = {item.rpartition("[")[2][:-1] for item in items}
    master = slurm_master.client()
    return {
        training.name: begin_example(master, training, image_of(training, request))
        for training in OF_EXAMPLES
        if training.name in asked
    }


def test_every_example_is_run() -> None:
    assert {training.name for training in OF_EXAMPLES} == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}


@pytest.mark.parametrize("training", OF_SUMS, ids=str)
def test_all_workers_of_two_nodes_take_part(
    training: Training, slurm_master: MasterProcess, request: pytest.FixtureRequest
) -> None:
    master = slurm_master.client()
    keys = {
        "resources": {"slots_per_trial": 4},
        "slurm": {"slots_per_node": 2},
        "environment": {"image": image_of(training, request), "environment_variables": ["OMP_NUM_THREADS=1"]},
    }
    number = begin_sum(master, training, keys)
    ended_as(master, number, "COMPLETED", 240)
    check_sum(master, number)
    check_record(master, number, training, scheduler="Slurm", sums=True)


@pytest.mark.parametrize("training", OF_EXAMPLES, ids=str)
def test_an_example_trains(training: Training, slurm_master: MasterProcess, begun: dict[str, int]) -> None:
    master, number = slurm_master.client(), begun[training.name]
    ended_as(master, number, "COMPLETED", 400)
    trials = master.trials(number)
    assert {(trial.state, trial.restarts) for trial in trials} == {("COMPLETED", 0)}
    # The search of digits pauses trials on rungs and resumes them in further jobs.
    assert max(trial.attempts for trial in trials) == 1 or training.name == "digits"
    right = [trial.best_metric or 0.0 for trial in trials]
    assert max(right) > 0.8 if bigger_is_better(training) else min(right) < 0.2
    if training.steps:
        assert trials[0].batches == training.steps
    elif training.workers > 1:
        assert only_trial(master, number).summary["avg_metrics"]["workers"]["min"] == training.workers
    if training.workers > 1:
        assert len({line.node for line in master.logs(trials[0].id) if line.node}) == training.nodes
    check_record(master, number, training, scheduler="Slurm", sums=False)


def test_the_search_of_digits_ends_poor_trials_early(slurm_master: MasterProcess, begun: dict[str, int]) -> None:
    if "digits" not in begun:
        pytest.skip("it was not begun: the test that it trains was not asked for")
    trials = slurm_master.client().trials(begun["digits"])
    epochs = [trial.summary["validation_metrics"]["epochs"]["max"] for trial in trials]
    assert len(trials) == 16
    assert set(epochs) <= {1, 5, 16}
    assert sum(epochs) <= 0.6 * 16 * 16


@pytest.mark.parametrize("training", GO_ON, ids=str)
def test_paused_example_resumes_where_it_stopped(
    training: Training, slurm_master: MasterProcess, request: pytest.FixtureRequest
) -> None:
    """Told to leave it saves; the next attempt reports each later step, and none twice."""
    master = slurm_master.client()
    number = begin_endless(master, training, image_of(training, request))
    wait_beyond(master, number, 0)
    master.pause(number)
    wait_for(lambda: master.experiment(number).state == "PAUSED" and not running(master, number), "the end of the job")
    trial = only_trial(master, number)
    made = [checkpoint.steps_completed for checkpoint in master.checkpoints(number)]
    saved = max(made)
    if training.door:  # it left after the next step, wherever that was in its epoch
        assert saved >= trial.batches, log_text(master, trial.id)
    else:
        assert made == [trial.batches], log_text(master, trial.id)
    master.activate(number)
    wait_beyond(master, number, saved)
    master.cancel(number)
    ended_as(master, number, "CANCELED")
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts) == (2, 0), log_text(master, trial.id)
    steps = validations(master, [trial.id])[trial.id]
    assert steps == list(range(steps[0], steps[-1] + 1, steps[0]))
    last = max(checkpoint.steps_completed for checkpoint in master.checkpoints(number))
    assert last >= steps[-1] if training.door else last == steps[-1]
    assert steps[-1] > saved


def bigger_is_better(training: Training) -> bool:
    (config,) = (EXAMPLES / training.name).glob("*.yaml")
    return yaml.safe_load(config.read_text())["searcher"].get("smaller_is_better") is False


def wait_beyond(master: Master, number: int, steps: int) -> None:
    """Until the only trial has reported a validation of a later step."""

    def look() -> bool:
        if master.experiment(number).ended_for_good:
            ended_as(master, number, "ACTIVE")  # for its message, with the trial's log
        return any(
            step > steps for trial in master.trials(number) for step in validations(master, [trial.id])[trial.id]
        )

    wait_for(look, f"a report after step {steps}", 240)


def running(master: Master, number: int) -> bool:
    attempts = master.task(only_trial(master, number).task_id)["allocations"]
    return any(not attempt.get("endTime") for attempt in attempts)
