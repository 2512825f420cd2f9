"""`det search simulate`: a configuration's search, tried on tables and on an experiment's curves."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.process.cli.conftest import Finished
from tests.support.det_shell import Shell

EPOCHS = 8
SEARCH = """
entrypoint: python3 train.py
hyperparameters:
  optimizer: {rate: {type: double, minval: 0.0, maxval: 1.0}}
searcher: {name: asha, metric: error, time_metric: epochs, max_time: 8, divisor: 2, max_trials: 16}
"""


@pytest.fixture
def files(shell: Shell) -> Path:
    """A configuration and a table of 16 trials, twice, where the shell is."""
    (shell.cwd / "search.yaml").write_text(SEARCH)
    rates = [place / 16 for place in range(16)]
    values = [[(1 + rate) / epoch for epoch in range(1, EPOCHS + 1)] for rate in rates]
    with (shell.cwd / "t.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["optimizer.rate", "epochs", "error", "seconds"])
        for rate, row in zip(rates, values, strict=True):
            table.writerows([rate, epoch, value, 360] for epoch, value in enumerate(row, 1))
    np.savez(
        shell.cwd / "t.npz", names=["optimizer.rate"], points=np.array(rates)[:, None], values=np.array(values),
        seconds=np.full(16, 360.0),
    )  # fmt: skip
    return shell.cwd


def simulate(shell: Shell, *arguments: str) -> tuple[str, ...]:
    return ("search", "simulate", "search.yaml", "--table", "t.csv", "--seeds", "3", "--workers", "4", *arguments)


def test_tables_say_what_was_found_when_and_who_was_stopped(shell: Shell, files: Path) -> None:
    done = shell.det(*simulate(shell))
    (found,) = done.table(0)
    assert found["Search"] == "asha (3 simulations)"
    assert 0 < float(found["Slot-hours"]) < 16 * EPOCHS * 0.1
    assert found["Trials"] == "16"
    moments = done.table(1)
    assert len(moments) == 10
    medians = [float(moment["Median"]) for moment in moments]
    assert medians == sorted(medians, reverse=True)
    assert medians[-1] == pytest.approx(float(found["Best error"]))
    assert all(float(one["Lower quartile"]) <= float(one["Upper quartile"]) for one in moments)
    lengths = {int(row["Trained epochs"]): float(row["Trials"]) for row in done.table(2)}
    assert sum(lengths.values()) == pytest.approx(16, abs=0.3)
    assert min(lengths[1], lengths[EPOCHS]) >= 1
    assert "serve several" not in done.out
    more = shell.det(*simulate(shell, "--set", "max_trials=17")).out
    assert "There are 16 recorded curves, fewer than trials" in more
    assert sum(units * trials for units, trials in lengths.items()) < 16 * EPOCHS


def test_both_kinds_of_tables_tell_the_same(shell: Shell, files: Path) -> None:
    one, other = (shell.det(*simulate(shell, "--table", table, "--json")).json() for table in ("t.csv", "t.npz"))
    assert one == other
    longer = shell.det(*simulate(shell, "--walltime", "1000", "--queue-delay", "3600", "--json")).json()
    assert longer["runs"][0]["seconds"] > one["runs"][0]["seconds"] + 3600


def test_another_searcher_trains_every_trial_to_its_end(shell: Shell, files: Path) -> None:
    arguments = ("--searcher", "random", "--set", "max_trials=6", "--json")
    found = shell.det(*simulate(shell, *arguments)).json()
    assert [run["lengths"] for run in found["runs"]] == [[[EPOCHS, 6]]] * 3
    assert found["runs"][0]["slot_seconds"] == 6 * EPOCHS * 360


def test_an_experiment_is_a_table_whose_own_course_is_drawn(shell: Shell, files: Path, finished: Finished) -> None:
    single = "searcher: {name: random, metric: error, max_trials: 2}"
    space = "hyperparameters: {value: {type: double, minval: 1.0, maxval: 2.0}}"
    (files / "again.yaml").write_text(f"entrypoint: python3 train.py\n{space}\n{single}\n")
    done = shell.det("search", "simulate", "again.yaml", "--table", str(finished.id), "--seeds", "2", "--plot", "o.svg")
    assert [row["Search"] for row in done.table(0)] == ["as it was", "random (2 simulations)"]
    assert "the picture is in o.svg" in done.err
    picture = (files / "o.svg").read_text()
    for name in ("random, 2 workers", "quartiles", "the recorded experiment", "best error", "hours"):
        assert f"<!-- {name}" in picture, name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--table", "t.txt"], "--table takes a .csv or .npz file, or the number of an experiment, not 't.txt'"),
        (["--table", "gone.csv"], "gone.csv cannot be read: No such file or directory."),
        (["--table", "2000000000"], "There is no experiment 2000000000."),
        (["--set", "metric=loss"], "t.csv has no column 'loss', the searcher's metric; it has optimizer.rate"),
        (["--set", "metric="], "the file names no searcher.metric"),
        (["--set", "metric={"], "--set metric: '{' is not a value in YAML"),
        (["--set", "max_time=9"], "searcher.max_time is 9, but the curves of the table end at 8 epochs"),
        (["--config", "searcher.max_trails=9"], "searcher.max_trails"),
        (["--walltime", "0"], "--walltime"),
        (["--plot", "out.gif"], "--plot takes a file that ends in .png, .svg, .pdf, not 'out.gif'"),
        (["--plot", "no/such/folder/out.png"], "no/such/folder/out.png cannot be written"),
    ],
)
def test_bad_requests_get_a_sentence(shell: Shell, files: Path, arguments: list[str], words: str) -> None:
    refused = shell.run(*simulate(shell, *arguments))
    assert refused.status != 0
    assert words in refused.err, refused.err
