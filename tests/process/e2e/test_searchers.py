"""Searchers that pause, resume and copy trials: on a real master with real jobs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.process.e2e.test_lifecycle import create, story
from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, log_text, validations, wait_for
from trainmaster.client.errors import APIError
from trainmaster.client.master import Master

VALUE = {"type": "double", "minval": 1.0, "maxval": 2.0}


def promotion(trials: int, **more: Any) -> dict[str, Any]:
    return {**trainings.asha(trials, 8, **more), "name": "asha"}


def starts(master: Master, trial_id: int) -> list[int]:
    """After which epochs the attempts of a trial began."""
    return [int(number) for number in re.findall(r"starting after epoch (\d+)", log_text(master, trial_id))]


def test_trials_wait_on_their_rungs_and_continue(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(promotion(9, max_concurrent_trials=2), epochs=8, value=VALUE))
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    assert len(trials) == 9
    assert {(trial.state, trial.restarts) for trial in trials} == {("COMPLETED", 0)}
    seen = validations(master, [trial.id for trial in trials])
    assert all(epochs == list(range(1, len(epochs) + 1)) for epochs in seen.values()), "an epoch was lost or doubled"
    best = min(trials, key=lambda trial: trial.hparams["value"])
    assert len(seen[best.id]) == 8
    resumed = [trial for trial in trials if "Resume" in story(master, trial.id)]
    assert resumed
    for trial in resumed:
        assert starts(master, trial.id)[:2] == [0, starts(master, trial.id)[1]]
        assert starts(master, trial.id)[1] >= 2
        assert trial.attempts >= 2
    waited = [trial for trial in trials if trial not in resumed and trial.id != best.id]
    assert any("Pause" in story(master, trial.id) and trial.attempts == 1 for trial in waited)


def test_script_that_saves_nothing_begins_again_each_time(local: MasterProcess) -> None:
    master = local.client()
    script = trainings.COUNTING.replace("save()\n", "pass\n")
    searcher = promotion(6, max_concurrent_trials=1)
    number = create(master, trainings.experiment(searcher, epochs=8, value=VALUE, pause=0.01), script)
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    assert {(trial.state, trial.restarts) for trial in trials} == {("COMPLETED", 0)}
    again = [trial for trial in trials if trial.attempts > 1]
    assert again
    for trial in again:
        assert "It never saved a checkpoint: it begins again" in log_text(master, trial.id)
        assert set(starts(master, trial.id)) == {0}
    assert max(trial.batches for trial in trials) == 8


def test_search_in_the_wrong_direction_is_said_once(local: MasterProcess) -> None:
    master = local.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 7, "max_concurrent_trials": 2}
    right = create(master, trainings.experiment(searcher, epochs=4, pause=0.01, value=VALUE))
    text = trainings.experiment({**searcher, "smaller_is_better": False}, epochs=4, pause=0.01, value=VALUE)
    wrong = create(master, text)
    for number in (right, wrong):
        ended_as(master, number, "COMPLETED")

    def warnings(number: int) -> list[str]:
        return [event.why for event in master.views.story(number) if event.event == "Warning"]

    assert warnings(right) == []
    (said,) = warnings(wrong)
    assert said.startswith("In 5 of 5 trials error got worse the longer they trained")
    assert said.endswith("set searcher.smaller_is_better: true")


def test_a_persons_pause_and_the_searchs_are_told_apart(local: MasterProcess) -> None:
    master = local.client()
    searcher = promotion(3, max_concurrent_trials=1, num_rungs=2)
    number = create(master, trainings.experiment(searcher, epochs=8, value=VALUE, wait_at=5, wait_for="/nowhere"))

    def rested() -> bool:
        return sum("Pause" in story(master, trial.id) for trial in master.trials(number)) >= 1

    wait_for(rested, "a trial that the search paused")
    held = next(trial.id for trial in master.trials(number) if "Pause" in story(master, trial.id))
    master.pause(number)
    wait_for(lambda: {trial.state for trial in master.trials(number)} == {"PAUSED"}, "the pause of all trials")
    attempts = master.trial(held).attempts
    master.activate(number)
    wait_for(lambda: any(trial.state == "ACTIVE" for trial in master.trials(number)), "an active trial")
    assert (master.trial(held).state, master.trial(held).attempts) == ("PAUSED", attempts)
    master.kill(number)
    ended_as(master, number, "CANCELED")


def test_population_copies_its_best(local: MasterProcess) -> None:
    master = local.client()
    searcher = {
        "name": "pbt", "metric": "error", "time_metric": "epochs", "max_time": 8, "interval": 2, "population": 8,
        "quantile": 0.5, "resample_probability": 0,
    }  # fmt: skip
    number = create(master, trainings.experiment(searcher, epochs=8, value=VALUE, save_at=1))
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    copies = [trial for trial in trials if "a copy of trial" in story(master, trial.id)]
    assert len(trials) == 8 + len(copies)
    assert copies
    for trial in copies:
        assert starts(master, trial.id)[0] >= 1, "it did not load its parent's checkpoint"
        (parent,) = re.findall(r"a copy of trial number (\d+)", story(master, trial.id))
        value, copied = trial.hparams["value"], trials[int(parent)].hparams["value"]
        ways = [copied * 1.2, copied / 1.2, 1.0, 2.0]
        assert 1.0 <= value <= 2.0
        assert any(value == pytest.approx(way) for way in ways)


def custom(**more: Any) -> str:
    return trainings.experiment({"name": "custom", "metric": "error", "metrics": ["epochs"], **more}, value=VALUE)


def test_program_of_the_user_decides(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, custom(max_concurrent_trials=2))
    search, asked = master.custom_search(number), []
    for question in search:
        asked.append((question.kind, question.trial))
        if question.kind == "begun":
            assert [search.create({"value": value}) for value in (1.0, 2.0)] == [0, 1]
            search.state = {"ended": 0}
        elif question.kind == "validated" and question.trial == 1 and question.metrics["epochs"] == 2:
            assert question.metrics["error"] == 1.0
            search.stop(1)
        elif question.kind == "ended":
            search.state["ended"] += 1
            if search.state["ended"] == 1:
                search.create({"value": 1.5}, parent=question.trial)
            elif search.state["ended"] == 3:
                search.finish()
    assert asked[0] == ("begun", -1)
    assert sorted(trial for kind, trial in asked if kind == "ended") == [0, 1, 2]
    ended_as(master, number, "COMPLETED")
    assert [trial.hparams["value"] for trial in master.trials(number)] == [1.0, 2.0, 1.5]
    child = master.trials(number)[2]
    assert starts(master, child.id)[0] > 0, "it continues from its parent's checkpoint"


def test_program_that_vanishes_is_asked_again_and_answers_count_once(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, custom(max_concurrent_trials=2))
    search = master.custom_search(number)
    for _ in search:
        search.create({"value": 1.0})
        break  # it dies before its answer is sent
    assert master.trials(number) == []
    path = f"/api/x1/experiments/{number}/search-questions"
    first = master._http.request("GET", path)
    assert [question["kind"] for question in first["questions"]] == ["begun"]
    answer = {"operations": [{"create": {"hparams": {"value": 1.25}}}], "state": 7}
    bad = {
        "state: a text holds a NUL": {"a": ["b\0"]},
        "half a surrogate": "\ud800",
        "may have 65,536": {"a": "x" * 70_000},
    }
    for words, state in bad.items():
        with pytest.raises(APIError, match=words):
            master._http.request("POST", f"{path}/1/answer", body={"operations": [], "state": state})
    done, repeated = (master._http.request("POST", f"{path}/1/answer", body=answer) for _ in range(2))
    assert done == {"repeated": False, "over": False, "created": [0]}
    assert repeated == {"repeated": True, "over": False, "created": []}
    again = master.custom_search(number)
    for question in again:
        assert again.state == 7 or question.kind != "validated"
        if question.kind == "ended":
            again.finish()
    ended_as(master, number, "COMPLETED")
    assert [trial.hparams["value"] for trial in master.trials(number)] == [1.25]


def test_search_begins_with_what_an_earlier_one_found(local: MasterProcess) -> None:
    master = local.client()
    earlier = create(master, trainings.experiment(searcher := {**promotion(6), "name": "auto"}, epochs=1, value=VALUE))
    ended_as(master, earlier, "COMPLETED")
    best = min(trial.hparams["value"] for trial in master.trials(earlier))
    number = create(master, trainings.experiment({**searcher, "learn_from": [earlier]}, epochs=1, value=VALUE))
    ended_as(master, number, "COMPLETED")
    assert master.trials(number)[0].hparams["value"] == pytest.approx(best)
    known = master.experiment(number).config["searcher"]["known"]
    assert [each["rank"] for each in known] == [round(n / 6, 4) for n in range(6)]
    with pytest.raises(APIError, match=r"searcher\.learn_from\[0\]: there is no experiment 99999\."):
        create(master, trainings.experiment({**searcher, "learn_from": [99999]}, epochs=1, value=VALUE))
