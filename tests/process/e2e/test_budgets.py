"""Searches within slot-hours and a deadline: on a real master with real jobs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.process.e2e.test_lifecycle import create
from tests.support import trainings
from tests.support.master import MasterProcess, ended_as
from trainmaster.client.errors import APIError
from trainmaster.client.master import Master

AUTO: dict[str, Any] = {
    "name": "auto", "metric": "error", "time_metric": "epochs", "max_time": 9, "max_concurrent_trials": 2,
}  # fmt: skip


def warnings(master: Master, number: int) -> list[str]:
    return [event.why for event in master.views.story(number) if event.event == "Warning"]


def test_slot_hours_are_kept_and_planned(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment({**AUTO, "slot_hours": 12 / 3600}, epochs=9, pause=0.2))
    ended_as(master, number, "COMPLETED")
    plan = master.views.search_plan(number)
    assert 4 < plan.used.slot_hours * 3600 < 12 + 2 * 6, "at most a leg of each trial under way beyond it"
    assert plan.used.trials > 2
    assert plan.budget.slot_hours == pytest.approx(12 / 3600)
    assert plan.unit_seconds is not None
    assert plan.sentences[0].endswith("of 0.00333 slot-hours are used.")
    said = local.det("search", "plan", str(number)).stdout
    assert said.startswith(f"{plan.used.trials} trials begun, ")


def test_deadline_that_cannot_be_met_is_said(local: MasterProcess) -> None:
    master = local.client()
    deadline = (dt.datetime.now().astimezone() + dt.timedelta(seconds=12)).isoformat()
    number = create(master, trainings.experiment({**AUTO, "deadline": deadline}, epochs=9, pause=2.0))
    ended_as(master, number, "COMPLETED")
    (warning,) = warnings(master, number)
    assert warning.startswith("searcher.deadline cannot be met: a trial of 9 epochs takes about 0.00")
    assert max(trial.batches for trial in master.trials(number)) < 9
    assert master.views.search_plan(number).sentences[0].startswith("The deadline is ")


def test_deadline_in_the_past_is_refused(local: MasterProcess) -> None:
    master = local.client()
    before = len(master.experiments())
    with pytest.raises(APIError, match=r"searcher\.deadline: 2020-01-01T12:00:00\+00:00 is in the past; give a later"):
        create(master, trainings.experiment({**AUTO, "deadline": "2020-01-01T12:00:00Z"}, epochs=9))
    assert len(master.experiments()) == before


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {},
            r"searcher.max_trials: is required for auto: how many trials there are in all; or else slot",
        ),
        ({"deadline": "soon"}, r"searcher.deadline: a time is wanted, in quotes: a span from now \('36h'\)"),
        ({"slot_hours": 0}, r"searcher.slot_hours: must be above 0, found 0"),
    ],
)
def test_budgets_that_are_none(local: MasterProcess, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(APIError, match=sentence):
        create(local.client(), trainings.experiment({**AUTO, **more}, epochs=9))
