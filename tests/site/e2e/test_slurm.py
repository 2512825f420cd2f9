"""Experiments on real Slurm: an ordinary user's batch jobs, in real containers, on several nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import apptainer_command, python_image, slurm_cluster, torch_image
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    free_port,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    validations,
    wait_for,
)
from tests.support.services import page, wait_over
from tests.support.slurm.site import USER, make_slurm_master, slurm_master
from trainmaster.client import context
from trainmaster.client.errors import APIError
from trainmaster.client.master import Master

__all__ = ["apptainer_command", "python_image", "slurm_cluster", "slurm_master", "torch_image"]

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]
EXAMPLES = Path(__file__).resolve().parent.parent.parent.parent / "examples"


def create(master: Master, text: str) -> int:
    return master.create_experiment(text, files(train__py=trainings.COUNTING)).id


def job_of(master: Master, number: int, attempt: int = -1) -> dict[str, object]:
    found: dict[str, object] = master.task(only_trial(master, number).task_id)["allocations"][attempt]
    return found


def wait_running(master: Master, number: int, steps: int = 1) -> str:
    """The Slurm job id of the experiment's only trial once it reports."""
    wait_for(lambda: any(t.batches >= steps for t in master.trials(number)), f"step {steps} of experiment {number}")
    return str(job_of(master, number)["jobId"])


@pytest.fixture(scope="module", autouse=True)
def limited(slurm_master: MasterProcess) -> int:
    """An experiment whose jobs may run for a minute, begun before all others: most of a test of it is waiting."""
    text = trainings.experiment(epochs=30, stay_at=20, keys={"slurm": {"sbatch_args": ["--time=1"]}})
    return create(slurm_master.client(), text)


def test_a_trial_is_a_batch_job_of_the_user_in_a_container(slurm_master: MasterProcess, slurm_cluster: Cluster) -> None:
    master = slurm_master.client()
    number = create(master, trainings.experiment(epochs=100_000))
    job = wait_running(master, number)
    shown = slurm_cluster.command("scontrol", "show", "job", job)
    assert f"UserId={USER}(" in shown
    assert "Partition=main" in shown
    assert slurm_master.password not in shown
    processes = slurm_cluster.command("squeue", "-h", "-j", job, "-o", "%j")
    assert processes.startswith("det-")
    # The job itself said that it runs; the scheduler's word for it comes with the next look.
    nodes = wait_for(lambda: job_of(master, number)["nodes"], "a look at the running job")
    assert nodes == [shown.partition("BatchHost=")[2].split()[0]]

    def busy() -> bool:
        """The node is shown as an agent, with a slot in use."""
        agent = next(agent for agent in master.agents() if agent["id"] == nodes[0])
        held = [slot for slot in agent["slots"].values() if slot["container"]]
        return bool(held) and "main" in agent["resourcePools"] and agent["enabled"]

    wait_for(busy, "a listing of the pools with the job in it")
    master.cancel(number)
    ended_as(master, number, "CANCELED")
    assert only_trial(master, number).batches == master.checkpoints(number)[0].steps_completed


def test_a_command_and_a_service_are_batch_jobs_too(
    slurm_master: MasterProcess, slurm_cluster: Cluster, tmp_path: Path
) -> None:
    master = slurm_master.client()
    (tmp_path / "say.py").write_text(
        "import getpass, os; print('I am', getpass.getuser(), os.environ['DET_TASK_TYPE'])"
    )
    config = {"entrypoint": ["python3", "say.py"], "resources": {"slots": 1}}
    command = master.tasks.launch("command", config, context.collect(tmp_path))["id"]
    port = free_port()
    text = f"{{entrypoint: python3 -m http.server {port}, environment: {{proxy_ports: [{{proxy_port: {port}}}]}}}}"
    service = master.tasks.create(text, context.collect(tmp_path))
    assert "I am" in page(slurm_master, f"/proxy/{service}:{port}/say.py")
    job = str(master.task(service)["allocations"][0]["jobId"])
    assert "JobState=RUNNING" in slurm_cluster.command("scontrol", "show", "job", job)
    master.tasks.end(service)
    for task_id in (service, command):
        wait_over(master, task_id)
    # By scancel, or before it by the runtime, which hears from the master that its task is over.
    wait_for(
        lambda: re.search("JobState=(CANCELLED|FAILED)", slurm_cluster.command("scontrol", "show", "job", job)),
        "the end of the service's job",
    )
    said = "".join(line["log"] for line in master.cluster.task_log(command))
    assert f"I am {USER} COMMAND" in said


def test_two_node_training_saves_on_warning_and_continues(
    slurm_master: MasterProcess, slurm_cluster: Cluster, torch_image: Path
) -> None:
    master, epochs = slurm_master.client(), 12
    folder = EXAMPLES / "digits-ddp"
    text = (folder / "search.yaml").read_text().replace("environment:", f"environment:\n  image: {torch_image}")
    number = master.create_experiment(text.replace("epochs: 5", f"epochs: {epochs}"), context.collect(folder)).id
    job = wait_running(master, number, 23 * 2)
    slurm_cluster.command("scancel", "--signal=USR2", job)  # Slurm sends it to every process of the step
    ended_as(master, number, "COMPLETED", 240)
    trial = only_trial(master, number)
    assert (trial.restarts, trial.attempts, trial.batches) == (0, 2, epochs * 23)
    assert validations(master, [trial.id])[trial.id] == [epoch * 23 for epoch in range(1, epochs + 1)]
    assert trial.summary["avg_metrics"]["workers"]["max"] == 4
    assert trial.best_metric is not None
    assert trial.best_metric < 0.3
    nodes = {line.node for line in master.logs(trial.id) if line.node}
    assert len(nodes) >= 2
    last = trial.summary["validation_metrics"]["validation_error"]["last"]
    saved = max(master.checkpoints(number), key=lambda checkpoint: checkpoint.steps_completed)
    assert saved.metric == pytest.approx(last)


def test_a_walltime_is_no_failure(slurm_master: MasterProcess, limited: int) -> None:
    master = slurm_master.client()
    ended_as(master, limited, "COMPLETED", 240)
    trial = only_trial(master, limited)
    assert (trial.restarts, trial.batches) == (0, 30)
    assert trial.attempts >= 2
    assert "time limit" in log_text(master, trial.id)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 31))


def test_scancel_ends_trial_with_reason(slurm_master: MasterProcess, slurm_cluster: Cluster) -> None:
    master = slurm_master.client()
    number = create(master, trainings.experiment(epochs=100_000, keys={"max_restarts": 3}))
    slurm_cluster.command("scancel", wait_running(master, number))
    ended_as(master, number, "CANCELED")
    trial = only_trial(master, number)
    assert (trial.state, trial.restarts, trial.attempts) == ("CANCELED", 0, 1)
    assert "ancelled" in trial.reason
    assert trial.reason in log_text(master, trial.id)


def test_trial_continues_after_node_failure_without_charge(slurm_master: MasterProcess, slurm_cluster: Cluster) -> None:
    master = slurm_master.client()
    number = create(master, trainings.experiment(epochs=10, save_at=2, stay_at=4))
    wait_running(master, number, 4)
    (node,) = wait_for(lambda: job_of(master, number)["nodes"], "a look at the running job")  # type: ignore[misc]
    slurm_cluster.kill_node(node)  # type: ignore[has-type]
    try:
        ended_as(master, number, "COMPLETED", 180)
    finally:
        slurm_cluster.restore_node(node)  # type: ignore[has-type]
    trial = only_trial(master, number)
    assert (trial.restarts, trial.attempts, trial.batches) == (0, 2, 10)
    text = log_text(master, trial.id)
    assert "no restart is charged" in text
    assert "starting after epoch 2" in text


OUT_OF_MEMORY = """
import time
from trainmaster import core
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    hog = []
    while True:
        hog.append(bytearray(b"x" * 2**24))
        time.sleep(0.01)
"""


def test_out_of_memory_is_named(slurm_master: MasterProcess) -> None:
    master = slurm_master.client()
    text = trainings.experiment(keys={"slurm": {"sbatch_args": ["--mem=300M"]}})
    number = master.create_experiment(text, files(train__py=OUT_OF_MEMORY)).id
    ended_as(master, number, "ERROR")
    trial = only_trial(master, number)
    assert trial.state == "ERROR"
    assert "memory" in trial.reason


def test_late_answer_to_submit_makes_exactly_one_job(slurm_master: MasterProcess, slurm_cluster: Cluster) -> None:
    master = slurm_master.client()
    slurm_cluster.pause_controller()
    try:
        number = create(master, trainings.experiment(epochs=3))
        # sbatch gives up after MessageTimeout; only then is the submit ambiguous.
        wait_for(
            lambda: "not known whether the scheduler has the job" in log_text(master, only_trial(master, number).id),
            "the submit to become ambiguous",
            90,
        )
    finally:
        slurm_cluster.resume_controller()
    ended_as(master, number, "COMPLETED", 180)
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts, trial.batches) == (1, 0, 3)
    token = str(job_of(master, number)["jobName"])
    jobs = slurm_cluster.command("squeue", "-h", "-t", "all", "--name", token, "-o", "%i").split()
    assert len(jobs) == 1
    assert log_text(master, trial.id).count("starting after epoch") == 1


@pytest.fixture(scope="module")
def meanwhile(slurm_master: MasterProcess, slurm_cluster: Cluster) -> int:
    """An experiment that was created while the controller was away; another one ended."""
    master = slurm_master.client()
    number = create(master, trainings.experiment(epochs=40, pause=0.1))
    wait_running(master, number)
    slurm_cluster.stop_controller()
    try:
        ended_as(master, number, "COMPLETED")
        other = create(master, trainings.experiment(epochs=1))
        wait_for(lambda: "cannot be reached" in log_text(master, only_trial(master, other).id), "the reason", 90)
        assert only_trial(master, other).state == "ACTIVE"
    finally:
        slurm_cluster.start_controller()
    return other


def test_while_the_controller_is_down_nothing_changes(slurm_master: MasterProcess, meanwhile: int) -> None:
    assert only_trial(slurm_master.client(), meanwhile).restarts == 0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"resources": {"resource_pool": "mian"}}, "no resource pool 'mian'. Did you mean 'main'"),
        ({"environment": {"image": "/nowhere/image.sif"}}, "/nowhere/image.sif"),
        ({"slurm": {"sbatch_args": ["--uid=0"]}}, "--uid"),
        ({"slurm": {"sbatch_args": ["--part=main"]}}, "--part"),
        ({"resources": {"slots_per_trial": 3, "is_single_node": True}}, "3"),
        ({"resources": {"slots_per_trial": 64}}, "64"),
    ],
)
def test_impossible_experiment_is_rejected_before_creation(
    slurm_master: MasterProcess, keys: dict[str, object], words: str
) -> None:
    master = slurm_master.client()
    before = len(master.experiments(archived=None))
    with pytest.raises(APIError) as refused:
        create(master, trainings.experiment(epochs=1, keys=keys))
    assert words in str(refused.value)
    assert refused.value.status == 400
    assert len(master.experiments(archived=None)) == before


@pytest.fixture
def own_slurm_master(slurm_cluster: Cluster, apptainer_command: Path, python_image: Path) -> Iterator[MasterProcess]:
    folder = make_folder()
    process = make_slurm_master(folder, slurm_cluster, apptainer_command, python_image)
    yield process
    process.clean_up()
    remove_folder(folder)


def test_killed_masters_lose_no_batch_job(own_slurm_master: MasterProcess, slurm_cluster: Cluster) -> None:
    own_slurm_master.start()
    text = trainings.experiment(
        trainings.asha(8, 8), epochs=8, pause=0.3, value={"type": "double", "minval": 1, "maxval": 9}
    )
    number = create(own_slurm_master.client(), text)
    for pause in (0.1, 0.7, 1.5, 0.3):
        time.sleep(pause)  # the moment is the input here
        own_slurm_master.kill()
        own_slurm_master.start()
    master = own_slurm_master.client()
    ended_as(master, number, "COMPLETED", 240)
    trials = master.trials(number)
    reported = validations(master, [trial.id for trial in trials])
    for trial in trials:
        text = log_text(master, trial.id)
        assert (trial.state, trial.attempts, trial.restarts) == ("COMPLETED", 1, 0), text
        assert text.count("starting after epoch") == 1
        assert reported[trial.id] == list(range(1, trial.batches + 1))


def test_experiment_created_during_outage_runs_once(slurm_master: MasterProcess, meanwhile: int) -> None:
    """The last one here: half a minute passes before the master tries again."""
    master = slurm_master.client()
    ended_as(master, meanwhile, "COMPLETED", 120)
    assert (only_trial(master, meanwhile).attempts, only_trial(master, meanwhile).restarts) == (1, 0)
