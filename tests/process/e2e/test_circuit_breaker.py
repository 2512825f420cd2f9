"""A cluster that cannot start jobs: its pool pauses, bad nodes are avoided, and attempts are not charged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import flaky, trainings
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
from trainmaster.client.errors import APIError
from trainmaster.client.master import Master

FLAKY = """\
resource_manager: {{type: flaky, slots: 4, poll_interval: 0.2, job_storage_root: {root}}}
"""


@pytest.fixture
def master() -> Iterator[MasterProcess]:
    folder = make_folder()
    root = folder / "jobs"
    root.mkdir()
    process = MasterProcess(folder, FLAKY.format(root=root), environment=flaky.announce(folder / "plugin"))
    process.start()
    yield process
    process.clean_up()
    remove_folder(folder)


def asked(process: MasterProcess) -> list[list[str]]:
    """Every submit so far: the nodes that it was told to avoid."""
    path = process.folder / "jobs" / "asked.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[node for node in line.split(" ")[1].split(",") if node] for line in lines]


def create(master: Master, **hparams: object) -> int:
    searcher = {"name": "random", "metric": "error", "max_trials": hparams.pop("trials", 1)}
    return master.create_experiment(
        trainings.experiment(searcher, epochs=2, **hparams), files(train__py=trainings.COUNTING)
    ).id


def test_pool_pauses_on_failed_starts_until_one_job_runs(master: MasterProcess) -> None:
    broken = master.folder / "jobs" / "broken"
    broken.touch()
    client = master.client("admin")
    number = create(client, trials=6)
    wait_for(lambda: "resting" in client.pools()[0]["details"], "the rest of the pool", 90)
    resting = client.pools()[0]["details"]["resting"]
    assert resting["failures"] >= 5
    assert resting["why"].startswith("A node of the job failed on n7")
    why = "Pool default is paused: the cluster could not start the last "
    wait_for(lambda: [job.explanation.startswith(why) for job in client.jobs()] == [True], "the word in the queue", 90)
    # Every trial whose turn comes is told, and none of them is submitted.
    wait_for(
        lambda: all("Pool default is paused" in log_text(client, trial.id) for trial in client.trials(number)),
        "the word in every trial's log",
        90,
    )

    before = len(asked(master))
    # Somebody else's job tells whether it works again, without waiting for the end of the rest.
    broken.unlink()
    other = create(client)
    ended_as(client, other, "COMPLETED")
    assert len(asked(master)) >= before + 1
    wait_for(lambda: client.pools()[0]["details"] == {}, "the end of the rest")
    ended_as(client, number, "COMPLETED")
    assert [trial.restarts for trial in client.trials(number)] == [0] * 6


def test_an_administrator_says_go(master: MasterProcess) -> None:
    broken = master.folder / "jobs" / "broken"
    broken.touch()
    client = master.client("admin")
    number = create(client, trials=6)
    wait_for(lambda: "resting" in client.pools()[0]["details"], "the rest of the pool", 90)
    broken.unlink()
    with pytest.raises(APIError, match="Only an administrator"):
        master.client("determined").resume_pool("default")
    with pytest.raises(APIError, match="There is no resource pool 'deflaut'"):
        client.resume_pool("deflaut")
    client.resume_pool("default")
    ended_as(client, number, "COMPLETED")


def test_a_node_that_lost_a_job_is_avoided_by_the_next_attempt(master: MasterProcess) -> None:
    (master.folder / "jobs" / "broken").write_text("1")
    client = master.client()
    number = create(client)
    ended_as(client, number, "COMPLETED")
    assert asked(master) == [[], [flaky.NODE]]
    trial = only_trial(client, number)
    assert trial.restarts == 0
    # This machine has no other, as PBS has no word for it.
    assert f"flaky cannot keep a job off named nodes: it may be given {flaky.NODE} again" in log_text(client, trial.id)
    # One trial's misfortune is not yet everybody's.
    ended_as(client, create(client), "COMPLETED")
    assert asked(master)[-1] == []
