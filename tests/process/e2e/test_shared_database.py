"""Two masters on one PostgreSQL: both serve, one leads, and the other takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.database import database, private_server
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

CONFIG = """
db: {{host: {host}, user: trainmaster, name: {name}}}
resource_manager: {{type: local, slots: 4, poll_interval: 0.3, job_storage_root: {jobs}}}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
"""


@pytest.fixture
def pair() -> Iterator[tuple[MasterProcess, MasterProcess]]:
    shared = make_folder()
    for name in ("jobs", "checkpoints", "one", "two"):
        (shared / name).mkdir()
    with private_server() as server, database(server) as url:
        text = CONFIG.format(
            host=server.sockets,
            name=url.partition("@/")[2].partition("?")[0],
            jobs=shared / "jobs",
            checkpoints=shared / "checkpoints",
        )
        first, second = MasterProcess(shared / "one", text), MasterProcess(shared / "two", text)
        second.password = first.password
        yield first, second
        second.clean_up()
        first.clean_up()
    remove_folder(shared)


def test_the_one_that_stays_takes_over(pair: tuple[MasterProcess, MasterProcess]) -> None:
    first, second = pair
    first.start()
    second.start()
    master = second.client()
    text = trainings.experiment(
        trainings.asha(6, 8), epochs=8, pause=0.3, value={"type": "double", "minval": 1, "maxval": 9}
    )
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 1 for t in master.trials(number)), "the first master to start trials")
    first.kill()
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    reported = validations(master, [trial.id for trial in trials])
    for trial in trials:
        assert (trial.attempts, trial.restarts) == (1, 0), log_text(master, trial.id)
        assert reported[trial.id] == list(range(1, trial.batches + 1))
    assert not second.errors()


def test_long_poll_hears_decision_of_other_master(
    pair: tuple[MasterProcess, MasterProcess],
) -> None:
    first, second = pair
    first.start()
    second.start()
    master = first.client()
    number = master.create_experiment(trainings.experiment(epochs=100_000), files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 1 for t in master.trials(number)), "the trial to report")
    second.client().cancel(number)
    ended_as(master, number, "CANCELED", 30)
    assert only_trial(master, number).batches == master.checkpoints(number)[0].steps_completed


def test_the_url_of_a_folder_is_a_socket(tmp_path: Path) -> None:
    from trainmaster.config.master import Database
    from trainmaster.master.main import database_url

    url = database_url(Database(host=str(tmp_path), user="u", name="n", password="p@ss/word"))
    assert url == f"postgresql+psycopg2://u:p%40ss%2Fword@:5432/n?host={str(tmp_path).replace('/', '%2F')}"
