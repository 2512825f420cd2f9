"""Waiting for an experiment, and following a log, on a terminal and off it, and through a restart of the master."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli.conftest import CONFIG
from tests.support import trainings
from tests.support.det_shell import Shell
from tests.support.master import MasterProcess, files, make_folder, remove_folder, wait_ended, wait_for
from trainmaster.client.master import Master


def test_on_a_terminal_one_line_moves(shell: Shell, api: Master, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    text = trainings.experiment(epochs=6, wait_at=3, wait_for=str(gate))
    number = api.create_experiment(text, files(train__py=trainings.COUNTING)).id
    words = ("experiment", "wait", str(number), "--polling-interval", "0.2")
    done = shell.at_terminal(*words, once={"50.0 %": gate.touch})
    assert done.status == 0
    shown = done.out.split("\r\x1b[K")[1:]
    assert len(shown) >= 2
    assert "COMPLETED [####################] 100.0 % | trials: 1 done | best error" in shown[-1]
    assert done.out.count("\n") == 1  # when it is over
    done_so_far = [float(found[1]) for line in shown if (found := re.search(r"([0-9.]+) %", line))]
    assert done_so_far == sorted(done_so_far)


def test_off_a_terminal_lines_stay_few(shell: Shell, api: Master, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    text = trainings.experiment(epochs=10, pause=0.1, wait_at=1, wait_for=str(gate))
    number = api.create_experiment(text, files(train__py=trainings.COUNTING)).id
    began = time.monotonic()
    with shell.start("experiment", "wait", str(number), "--polling-interval", "0.1") as waiting:
        assert waiting.stderr is not None
        first = waiting.stderr.readline()
        gate.touch()
        lines = [first, *waiting.stderr.read().splitlines()]
        assert waiting.wait(60) == 0
    # A line at once, one in five seconds, and the last one.
    assert 2 <= len(lines) <= 2 + (time.monotonic() - began) / 5
    assert not any("\x1b" in line for line in lines)
    assert lines[-1].startswith(f"experiment {number} COMPLETED")


def test_a_failure_is_reported_with_its_reason(shell: Shell, api: Master) -> None:
    text = trainings.experiment(epochs=2, fail_at=1, fail_with=3)
    number = api.create_experiment(text, files(train__py=trainings.COUNTING)).id
    done = shell.run("experiment", "wait", str(number))
    assert done.status == 1
    assert "| trials: 1 failed" in done.err
    assert done.err.splitlines()[-1] == f"det: Experiment {number} ended as ERROR: {api.experiment(number).reason}."


@pytest.fixture
def own(tmp_path: Path) -> Iterator[MasterProcess]:
    folder = make_folder()
    process = MasterProcess(folder, CONFIG)
    process.start()
    yield process
    process.clean_up()
    remove_folder(folder)


@pytest.mark.slow
def test_waiting_and_following_live_through_a_crash(shell: Shell, own: MasterProcess, tmp_path: Path) -> None:
    shell = shell.with_(DET_MASTER=own.url, DET_PASS=own.password)
    api = own.client()
    script = trainings.COUNTING.replace(
        "    done += 1\n", "    done += 1\n        print(f'epoch {done}', flush=True)\n"
    )
    gate = tmp_path / "gate"
    text = trainings.experiment(epochs=20, wait_at=10, wait_for=str(gate))
    number = api.create_experiment(text, files(train__py=script)).id
    wait_for(lambda: any(t.batches >= 3 for t in api.trials(number)), "some epochs")
    (trial,) = api.trials(number)
    with (
        shell.start("trial", "logs", "-f", str(trial.id)) as following,
        shell.start("experiment", "wait", str(number)) as waiting,
    ):
        assert following.stdout is not None
        first = following.stdout.readline()
        assert first != ""
        assert waiting.stderr is not None
        assert waiting.stderr.readline() != ""
        own.kill()
        away = [_until(process, "Waiting for it, 10 min at most.") for process in (following, waiting)]
        gate.touch()
        own.start()
        assert wait_ended(own.client(), number).state == "COMPLETED"
        # Not by communicate(), which would pass over what readline() has left in the stream's buffer.
        log = first + following.stdout.read()
        assert following.stderr is not None
        notices = [said + process.stderr.read() for said, process in zip(away, (following, waiting), strict=True)]  # type: ignore[union-attr]
        following.wait(60)
        waiting.wait(60)
    assert (following.returncode, waiting.returncode) == (0, 0)
    epochs = [int(found[1]) for line in log.splitlines() if (found := re.search(r"epoch (\d+)$", line))]
    assert [epoch for epoch in epochs if epoch > 0] == list(range(1, 21))
    for said in notices:
        assert said.count("does not answer (Connection refused). Waiting for it") == 1
        assert len(re.findall(r"^det: The master answers again after \d+ s\.$", said, re.MULTILINE)) == 1


def _until(process: subprocess.Popen[str], text: str) -> str:
    """What a command said on stderr up to the line that ends with `text`."""
    assert process.stderr is not None
    said = ""
    while not said.rstrip("\n").endswith(text):
        line = process.stderr.readline()
        assert line, said
        said += line
    return said
