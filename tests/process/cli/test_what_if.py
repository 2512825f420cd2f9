"""`det search what-if`: another searcher on an experiment's own curves."""

from __future__ import annotations

import pytest

from tests.process.e2e.test_lifecycle import create
from tests.support import trainings
from tests.support.det_shell import Shell
from tests.support.master import ended_as
from trainmaster.client.master import Master

VALUE = {"type": "double", "minval": 1.0, "maxval": 2.0}


@pytest.fixture(scope="module")
def searched(api: Master) -> int:
    """Twelve random trials of eight epochs."""
    searcher = {
        "name": "random", "metric": "error", "max_trials": 12, "max_concurrent_trials": 4,
    }  # fmt: skip
    number = create(api, trainings.experiment(searcher, epochs=8, pause=0.02, value=VALUE))
    ended_as(api, number, "COMPLETED")
    return number


def test_another_searcher_finds_as_much_for_less(shell: Shell, api: Master, searched: int) -> None:
    answer = api.views.what_if(
        searched, {"name": "asha", "max_time": 8, "time_metric": "epochs", "divisor": 2}, workers=4, seeds=3
    )
    assert (answer.searcher, answer.workers, answer.trials, answer.short, len(answer.runs)) == ("asha", 4, 12, 0, 3)
    assert answer.recorded is not None
    best = min(trial.best_metric or 9.0 for trial in api.trials(searched))
    assert answer.recorded.bests[-1][1] == pytest.approx(best)
    for run in answer.runs:
        assert run.trials == 12
        assert sum(units * count for units, count in run.lengths) < 12 * 8
        assert run.slot_seconds < answer.recorded.slot_seconds
        assert run.bests[-1][1] <= best * 1.3
    again = api.views.what_if(searched, {"name": "asha", "max_time": 8, "divisor": 2}, workers=4, seeds=3)
    assert [run.bests for run in again.runs] == [run.bests for run in answer.runs]

    out = shell.det(
        "search", "what-if", str(searched), "--searcher", "auto", "--set", "max_time=8", "--set", "time_metric=epochs",
        "--workers", "2", "--queue-delay", "60:0.5", "--seeds", "2",
    ).out  # fmt: skip
    assert "as it was" in out
    assert "auto (2 simulations)" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--searcher", "rondom"], "there is no searcher 'rondom'"),
        (["--searcher", "asha"], "searcher.max_time is required for asha"),
        (["--set", "divisor"], "--set takes KEY=VALUE"),
        (["--queue-delay", "soon"], "--queue-delay takes SECONDS or SECONDS:SPREAD"),
        (["--seeds", "0"], "seeds"),
        (["--searcher", "random", "--set", "max_trials=100000000"], "limits.trials"),
    ],
)
def test_bad_requests_get_a_sentence(shell: Shell, searched: int, arguments: list[str], words: str) -> None:
    refused = shell.run("search", "what-if", str(searched), *arguments)
    assert refused.status != 0
    assert words in refused.err, refused.err


def test_experiment_without_values_says_so(shell: Shell, api: Master) -> None:
    number = create(api, trainings.experiment(epochs=1), "print('nothing')")
    ended_as(api, number, "COMPLETED")
    refused = shell.run("search", "what-if", str(number), "--searcher", "random")
    assert "has reported error yet: there is nothing to replay" in refused.err
