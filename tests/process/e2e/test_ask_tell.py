"""Trials that programs outside of the master run: ask, tell, and what the search decides."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.master import MasterProcess, ended_as, wait_for
from trainmaster.client.asked_trials import AskTell
from trainmaster.client.errors import APIError, NoSuchThing
from trainmaster.client.master import Master

CONFIG = """
searcher: {name: asha, metric: loss, time_metric: epochs, max_time: 9, max_trials: 12, divisor: 3,
  max_concurrent_trials: 4, ask_tell: true}
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
"""


def create(master: Master, more: str = "") -> int:
    return master.create_experiment(CONFIG + more).id


def train(search: AskTell, seen: dict[int, list[int]]) -> None:
    for trial in search:
        epoch = trial.steps
        while epoch < 9:
            epoch += 1
            seen[trial.id].append(epoch)
            if not trial.tell(epoch, {"loss": trial.hparams["x"] + 1 / epoch, "epochs": epoch}):
                break
        else:
            trial.end()


def test_programs_run_the_trials_of_a_search(local: MasterProcess) -> None:
    master = local.client()
    number = create(master)
    seen: dict[int, list[int]] = defaultdict(list)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(train, local.client().ask_tell(number), seen) for _ in range(4)]:
            done.result(60)
    ended_as(master, number, "COMPLETED")
    trials = {trial.id: trial for trial in master.trials(number)}
    assert len(trials) == len(seen) == 12
    assert all(epochs == list(range(1, len(epochs) + 1)) for epochs in seen.values()), "an epoch was lost or doubled"
    best = min(trials.values(), key=lambda trial: trial.hparams["x"])
    assert len(seen[best.id]) == 9
    assert {len(epochs) for epochs in seen.values()} == {1, 3, 9}
    assert master.experiment(number).best_trial_id == best.id
    assert best.batches == 9


def test_ends_and_reports_that_were_told_before(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, more="max_restarts: 1")
    search = master.ask_tell(number)
    trials, over = search.ask(3)
    assert (len(trials), over) == (3, False)
    first, second, third = trials
    assert first.tell(1, {"loss": 1.0, "epochs": 1}) is False
    assert first.decision == "pause"
    first.tell(1, {"loss": 0.5, "epochs": 1})
    second.end("invalid")
    assert second.decision == "stop"
    third.end("out_of_memory")
    again = {trial.id: trial for trial in search.ask(9)[0]}
    assert third.id in again, "a failure may be tried again"
    assert first.id not in again
    again[third.id].end("failed")
    states = {trial.id: (trial.state, trial.restarts) for trial in master.trials(number)}
    assert states[second.id] == ("COMPLETED", 0)
    assert states[third.id] == ("ERROR", 1)
    master.kill(number)
    assert search.ask()[1]


def test_bad_input(local: MasterProcess) -> None:
    master = local.client()
    number = create(master)
    search = master.ask_tell(number)
    (trial,), _ = search.ask()
    with pytest.raises(APIError, match="has no trial 999999"):
        search.tell([{"trial_id": trial.id, "steps": 1, "metrics": {"loss": 1, "epochs": 1}}, {"trial_id": 999999}])
    assert master.trial(trial.id).batches == 0, "all or nothing"
    with pytest.raises(APIError, match="must not be empty"):
        search.tell([{"trial_id": trial.id, "steps": 1, "metrics": {"": 1}}])
    with pytest.raises(NoSuchThing):
        master.ask_tell(999999).ask()
    managed = master.create_experiment("entrypoint: 'true'\nsearcher: {name: single, metric: m}\n").id
    with pytest.raises(APIError, match=r"runs its trials as jobs: set searcher\.ask_tell"):
        master.ask_tell(managed).ask()
    ended: Any = wait_for(lambda: master.experiment(managed).ended_for_good, "its end")
    assert ended
