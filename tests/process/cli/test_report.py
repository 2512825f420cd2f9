"""`trainmaster report savings`: what ended searches saved, beside the running master."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.process.e2e.test_lifecycle import create
from tests.support import trainings
from tests.support.master import MasterProcess, ended_as
from trainmaster.cli import admin
from trainmaster.client.master import Master
from trainmaster.client.views import by_name

Json = dict[str, Any]
EPOCHS = 8
VALUE = {"type": "double", "minval": 1.0, "maxval": 2.0}
HALVING = {
    "name": "async_halving", "metric": "error", "time_metric": "epochs", "max_time": EPOCHS, "divisor": 2,
    "num_rungs": 3, "max_trials": 8, "max_concurrent_trials": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def halved(api: Master) -> int:
    number = create(api, trainings.experiment(HALVING, epochs=EPOCHS, pause=0.02, value=VALUE))
    ended_as(api, number, "COMPLETED")
    return number


@pytest.fixture(scope="module")
def random(api: Master) -> int:
    """Its trials all train to their end; its section names no length."""
    searcher = {"name": "random", "metric": "error", "max_trials": 4, "max_concurrent_trials": 4}
    number = create(api, trainings.experiment(searcher, epochs=EPOCHS, pause=0.02, value=VALUE))
    ended_as(api, number, "COMPLETED")
    return number


def report(process: MasterProcess, *arguments: str) -> int:
    place = ("--config", str(process.config), "--data", str(process.data))
    return admin.main(["report", "savings", *place, *arguments])


def read(process: MasterProcess, capsys: pytest.CaptureFixture[str], *arguments: str) -> Json:
    capsys.readouterr()
    assert report(process, "--json", *arguments) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_savings_are_those_of_the_page(
    process: MasterProcess, api: Master, halved: int, random: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read(process, capsys, "--most", "1000")
    searches = {one["experiment"]: one for one in found["searches"]}
    assert random in searches
    one, board = searches[halved], api.views.experiment(halved)
    stopped = [row for row in by_name(board) if row["stop"] == "searcher" and row["units"] < EPOCHS]
    assert (one["searcher"], one["owner"], one["trials"], one["unknown"]) == ("async_halving", "determined", 8, 0)
    assert one["stopped"] == len(stopped) > 0
    assert one["used"] == pytest.approx(board.experiment.slot_seconds, abs=0.2)
    assert one["saved"] == pytest.approx(board.experiment.seconds_saved, abs=0.2)
    assert one["saved"] == pytest.approx(
        sum((EPOCHS - row["units"]) * row["secondsPerUnit"] for row in stopped), rel=0.1
    )
    assert searches[random]["saved"] == 0
    for key in ("used", "saved", "trials", "stopped"):
        assert found["total"][key] == pytest.approx(sum(search[key] for search in searches.values()))
        for groups in ("owners", "workspaces"):
            assert sum(group[key] for group in found[groups]) == pytest.approx(found["total"][key])


def test_only_the_newest_searches_are_read(
    process: MasterProcess, halved: int, random: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (newest,) = read(process, capsys, "--most", "1")["searches"]
    assert newest["experiment"] == max(halved, random)
    everything = [one["experiment"] for one in read(process, capsys, "--since", "1h")["searches"]]
    assert everything[0] == newest["experiment"]
    assert {halved, random} <= set(everything)


def test_another_searcher_is_replayed_until_it_is_as_good(
    process: MasterProcess, halved: int, random: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read(process, capsys, "--most", "2", "--replay", "asha")
    replays = {one["experiment"]: one["replay"] for one in found["searches"]}
    assert set(replays) == {halved, random}
    reached = replays[random]
    assert (reached["failed"], found["replayed_with"]) == ("", "asha")
    assert reached["used"] > 0
    equalled = found["total"]["equalled"]
    assert equalled["searches"] == sum(one["used"] is not None for one in replays.values()) > 0
    assert equalled["replayed"] == pytest.approx(sum(one["used"] or 0 for one in replays.values()))

    assert report(process, "--most", "2", "--replay", "asha") == 0
    out = capsys.readouterr().out
    assert "As good with asha" in out
    assert "Without stopping" in out
    assert "2 searches used" in out
    assert "asha would have found a value as good in" in out


def test_searches_that_cannot_be_replayed_say_why(
    process: MasterProcess, api: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    searcher = {"name": "random", "metric": "error", "max_trials": 2}
    number = create(api, trainings.experiment(searcher, epochs=1, value=VALUE), "print('nothing')")
    ended_as(api, number, "COMPLETED")
    (one,) = read(process, capsys, "--most", "1", "--replay", "auto")["searches"]
    assert one["experiment"] == number
    assert "has reported error yet: there is nothing to replay" in one["replay"]["failed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--replay", "rondom"], "There is no searcher 'rondom'"),
        (["--since", "soon"], "'soon' is no time such as 12h, 30d or 8w"),
        (["--since", "0d"], "'0d' is no time"),
        (["--most", "0"], "'0' is not a whole number of at least 1"),
        (["--most", "1001"], "at most 1000 searches are shown"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml cannot be read"),
    ],
)
def test_bad_requests_get_a_sentence(
    process: MasterProcess, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    try:
        status = report(process, *arguments)
    except SystemExit as stopped:  # argparse's
        status = int(str(stopped.code))
    assert status in (1, 2)
    assert words in capsys.readouterr().err
