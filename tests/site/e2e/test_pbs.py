"""Experiments on a real PBS: an ordinary user's batch jobs, and a trial on two nodes."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.support import trainings
from tests.support.frameworks import OF_SUMS, Training, begin_sum, check_sum
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    validations,
    wait_for,
)
from tests.support.pbs.site import PbsSite, folder_for, pbs_site
from trainmaster.client.master import Master

__all__ = ["pbs_site"]

pytestmark = pytest.mark.pbs

CONFIG = """
resource_manager:
  type: pbs
  cluster_name: test
  job_storage_root: {jobs}
  container_run_type: none
  poll_interval: 1
  pools_cached_for: 5
  walltime_grace: 20
  environment: {environment}
  commands: {commands}
  place: {place}
  python: {python}
checkpoint_storage: {{type: shared_fs, host_path: {jobs}/checkpoints}}
"""

PYTHONS = {"torch": "TRAINMASTER_TORCH_PYTHON", "horovod": "TRAINMASTER_HOROVOD_PYTHON"}
# Two nodes, one process each: the chief reports what both agree upon. Epochs survive in the checkpoint.
TOGETHER = """
import json, sys, time
from trainmaster import core

info = core.get_cluster_info()
rank, size = info.container_rank, len(info.container_addrs)
distributed = core.DistributedContext(
    rank=rank, size=size, local_rank=0, local_size=1, cross_rank=rank, cross_size=size, chief_ip=info.container_addrs[0]
)
with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    done = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            done = json.loads((path / "state.json").read_text())["epochs"]
    print(f"rank {rank} of {size} starting after epoch {done}", flush=True)

    def save():
        if rank == 0:
            with context.checkpoint.store_path({"steps_completed": done}) as (path, _):
                (path / "state.json").write_text(json.dumps({"epochs": done}))

    while done < info.trial.hparams["epochs"]:
        time.sleep(0.1)
        done += 1
        ranks = distributed.allgather(rank)
        if rank == 0:
            context.train.report_validation_metrics(done, {"error": 1.0 / done, "workers": len(set(ranks))})
        if context.preempt.should_preempt():
            save()
            print(f"rank {rank} leaving after epoch {done}", flush=True)
            sys.exit(0)
    save()
"""


@pytest.fixture(scope="module")
def pbs_master(pbs_site: PbsSite) -> Iterator[MasterProcess]:
    """A master of an ordinary user, whose jobs run without containers."""
    if not pbs_site.is_here():
        pytest.skip("the hosts of this PBS are other machines: they would not reach a master on 127.0.0.1")
    folder, jobs = make_folder(), folder_for(pbs_site)
    account = pwd.getpwnam(pbs_site.user)
    (jobs / "checkpoints").mkdir(mode=0o700)
    os.chown(jobs / "checkpoints", account.pw_uid, account.pw_gid)
    source = folder / "source"
    package = Path(trainmaster.__file__).parent
    shutil.copytree(package, source / "trainmaster", ignore=shutil.ignore_patterns("__pycache__"))
    text = CONFIG.format(
        jobs=jobs,
        environment=pbs_site.environment,
        commands=pbs_site.options["commands"],
        place=pbs_site.two_nodes().get("place", "scatter"),
        python=pbs_site.options["python"],
    )
    user = pbs_site.user if os.geteuid() == 0 else None
    process = MasterProcess(folder, text, user=user, environment={"PYTHONPATH": str(source)})
    process.start()
    yield process
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    remove_folder(jobs)
    assert errors == []


def experiment(site: PbsSite, slots: int = 1, **more: Any) -> str:
    keys = {"resources": {"slots_per_trial": slots, "resource_pool": site.pool.name}, "pbs": {"slots_per_node": 1}}
    keys["pbs"] |= {"pbsbatch_args": more.pop("args", ["-l walltime=00:10:00"])}  # type: ignore[operator]
    return trainings.experiment(keys=keys, **more)


def create(master: Master, text: str, program: str = trainings.COUNTING) -> int:
    return master.create_experiment(text, files(train__py=program)).id


def wait_running(master: Master, number: int, steps: int = 1) -> str:
    """The PBS job id of the experiment's only trial once it reports."""
    wait_for(
        lambda: any(t.batches >= steps for t in master.trials(number)), f"step {steps} of experiment {number}", 180
    )
    allocation = master.task(only_trial(master, number).task_id)["allocations"][-1]
    return str(allocation["jobId"])


def test_a_trial_is_a_batch_job_of_the_user(pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    master = pbs_master.client()
    number = create(master, experiment(pbs_site, epochs=1000))
    job = wait_running(master, number)
    shown = pbs_site.command("qstat", "-f", job)
    assert f"Job_Owner = {pbs_site.user}@" in shown
    assert f"queue = {pbs_site.pool.name}" in shown
    assert "Job_Name = det-" in shown
    assert pbs_master.password not in shown
    assert "SESSION_TOKEN" not in shown
    master.cancel(number)
    ended_as(master, number, "CANCELED", 180)
    assert only_trial(master, number).batches == master.checkpoints(number)[0].steps_completed


def test_two_nodes_train_together(pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    pbs_site.two_nodes()
    master = pbs_master.client()
    number = create(master, experiment(pbs_site, slots=2, epochs=5), TOGETHER)
    ended_as(master, number, "COMPLETED", 300)
    trial = only_trial(master, number)
    text = log_text(master, trial.id)
    assert "rank 0 of 2 starting after epoch 0" in text
    assert "rank 1 of 2 starting after epoch 0" in text
    assert trial.summary["validation_metrics"]["workers"]["min"] == 2
    assert validations(master, [trial.id])[trial.id] == [1, 2, 3, 4, 5]
    if pbs_site.pool.nodes > 1:
        assert len({line.node for line in master.logs(trial.id) if line.node}) == 2


@pytest.mark.parametrize("training", [one for one in OF_SUMS if one.name in PYTHONS], ids=str)
def test_all_workers_of_two_nodes_take_part(training: Training, pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    """Without containers: a Python that has the framework, and lies in the same place on all hosts."""
    python = os.environ.get(PYTHONS[training.name])
    if not python:
        pytest.skip(f"no Python with {training.package}: set {PYTHONS[training.name]}")
    pbs_site.two_nodes()
    master = pbs_master.client()
    keys = {
        "resources": {"slots_per_trial": 2, "resource_pool": pbs_site.pool.name},
        "pbs": {"slots_per_node": 1, "pbsbatch_args": ["-l walltime=00:10:00"]},
    }
    number = begin_sum(master, training, keys, python)
    ended_as(master, number, "COMPLETED", 400)
    check_sum(master, number, workers=2)


def test_a_warning_to_a_job_of_two_nodes_makes_it_save_and_go_on(pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    pbs_site.two_nodes()
    master = pbs_master.client()
    number = create(master, experiment(pbs_site, slots=2, epochs=80), TOGETHER)
    job = wait_running(master, number, 2)
    pbs_site.command("qsig", "-s", "SIGUSR2", job)
    ended_as(master, number, "COMPLETED", 300)
    trial = only_trial(master, number)
    assert (trial.restarts, trial.attempts) == (0, 2)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 81))


def test_a_walltime_is_no_failure(pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    master = pbs_master.client()
    text = experiment(pbs_site, epochs=100, pause=0.2, args=["-l walltime=35"])
    number = create(master, text)
    ended_as(master, number, "COMPLETED", 400)
    trial = only_trial(master, number)
    assert (trial.restarts, trial.batches) == (0, 100)
    assert trial.attempts >= 2
    assert "time limit" in log_text(master, trial.id)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 101))


def test_job_deleted_with_qdel_cancels_its_trial_with_reason(pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    master = pbs_master.client()
    number = create(master, experiment(pbs_site, epochs=1000))
    pbs_site.command("qdel", wait_running(master, number))
    ended_as(master, number, "CANCELED", 180)
    trial = only_trial(master, number)
    assert (trial.state, trial.attempts) == ("CANCELED", 1)
    assert "ancelled" in trial.reason


def test_a_master_that_is_killed_loses_no_job(pbs_master: MasterProcess, pbs_site: PbsSite) -> None:
    master = pbs_master.client()
    number = create(master, experiment(pbs_site, epochs=60, pause=0.1))
    wait_running(master, number)
    pbs_master.kill()
    pbs_master.start()
    master = pbs_master.client()
    ended_as(master, number, "COMPLETED", 180)
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts, trial.batches) == (1, 0, 60)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 61))
