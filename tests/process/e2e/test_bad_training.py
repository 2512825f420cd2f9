"""Failing trainings: each trial ends in the right state, with a sentence that says why."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, wait_for
from trainmaster.client.master import Master
from trainmaster.client.models import Trial
from trainmaster.client.transport import Transport

REASON = "; no restart is left (max_restarts: 0)"


def failed(process: MasterProcess, script: str, **keys: Any) -> Trial:
    """The trial of a script that is to fail."""
    master = process.client()
    number = master.create_experiment(trainings.experiment(keys=keys), files(train__py=script)).id
    ended_as(master, number, "ERROR")
    trial = only_trial(master, number)
    assert (trial.state, trial.restarts) == ("ERROR", 0)
    return trial


@pytest.mark.parametrize(
    ("entrypoint", "how"),
    [
        ("no-such-program --x", "exit code 127 (there is no such program)"),
        (["no-such-program", "--x"], "there is no program 'no-such-program' in this image"),
        ("python3 no_such_file.py", "can't open file"),
        ("./train.py", "exit code 126 (a program cannot be run)"),
        (["./train.py", "--x"], "'./train.py' cannot be run: Permission denied"),
    ],
)
def test_an_entrypoint_that_is_not_there(local: MasterProcess, entrypoint: str | list[str], how: str) -> None:
    trial = failed(local, "print('never')\n", entrypoint=entrypoint)
    assert how in trial.reason
    assert any(word in trial.reason for word in ("no-such-program", "no_such_file.py", "./train.py"))
    assert trial.reason.endswith(REASON)
    assert "never" not in log_text(local.client(), trial.id)


@pytest.mark.parametrize("module", ["my_own_modul", "torch_of_another_image.nn"])
def test_a_module_that_is_missing_is_named(local: MasterProcess, module: str) -> None:
    trial = failed(local, f"print('beginning')\nimport {module}\n")
    missing = module.partition(".")[0]
    assert f"; its last lines: ModuleNotFoundError: No module named {missing!r}" in trial.reason
    assert trial.reason.startswith("The training code ended with exit code 1 on node ")
    shown = local.det("trial", "describe", str(trial.id)).stdout
    assert f"No module named {missing!r}" in " ".join(shown.split())
    assert f"import {module}" in log_text(local.client(), trial.id)


def test_reason_has_last_output_lines_without_traceback(local: MasterProcess) -> None:
    trial = failed(local, "import sys\nsys.exit('\\x1b[31mno data in /data\\x1b[0m: mount it')\n")
    assert trial.reason.endswith("; its last lines: no data in /data: mount it" + REASON)


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("import ctypes; ctypes.string_at(0)", "signal 11 (SIGSEGV)"),
        ("import os; os.abort()", "signal 6 (SIGABRT)"),
        ("import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 29, 1 << 29)); bytearray(1 << 30)", "MemoryError"),
    ],
)
def test_a_training_that_breaks_down(local: MasterProcess, script: str, how: str) -> None:
    assert how in failed(local, script).reason


NAN = """
import math
from trainmaster import core
value = float(core.get_cluster_info().trial.hparams["value"])
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    for step in (1, 2, 3):
        context.train.report_training_metrics(step, {"loss": value, "worse": -math.inf}, [{"loss": value}])
        context.train.report_validation_metrics(step, {"error": value, "epochs": step})
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "x").write_text("x")
"""


@pytest.mark.parametrize("smaller", [True, False])
def test_no_number_is_never_the_best(local: MasterProcess, smaller: bool) -> None:
    master = local.client()
    values = ["nan", "inf", "-inf", "2.5"]
    searcher = {"name": "grid", "metric": "error", "smaller_is_better": smaller, "max_concurrent_trials": 4}
    text = trainings.experiment(searcher, value={"type": "categorical", "vals": values})
    number = master.create_experiment(text, files(train__py=NAN)).id
    ended_as(master, number, "COMPLETED")
    trials = {trial.hparams["value"]: trial for trial in master.trials(number)}
    assert {value: trial.best_metric for value, trial in trials.items()} == {**dict.fromkeys(values), "2.5": 2.5}
    for value, said in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"), ("2.5", None)):
        warnings = [line for line in log_text(master, trials[value].id).splitlines() if "searcher's metric" in line]
        assert [f"'error' is {said}:" in line for line in warnings] == ([] if said is None else [True])
    assert {one.metric for one in master.checkpoints(number)} == {None, 2.5}
    for path in (
        f"experiments/{number}",
        f"experiments/{number}/trials?sortBy=SORT_BY_BEST_VALIDATION_METRIC",
        f"experiments/{number}/searcher/best_searcher_validation_metric",
        f"trials/{trials['nan'].id}",
        f"trials/{trials['nan'].id}/workloads",
    ):
        json.loads(_got(local, path), parse_constant=_refuse)


def _got(process: MasterProcess, path: str) -> bytes:
    transport = Transport(process.url)
    token = Master(transport).login("determined", process.password)
    transport.close()
    request = urllib.request.Request(f"{process.url}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        found: bytes = answer.read()
    return found


def _refuse(word: str) -> None:
    """RFC 8259 knows no NaN, which Python's reader takes."""
    raise AssertionError(f"{word} is no JSON")


DEAF = """
import signal, time
from trainmaster import core
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    context.train.report_training_metrics(core.get_cluster_info().trial.trial_run_id, {"loss": 1.0})
    while True:
        time.sleep(0.1)
"""


def test_hanging_trial_is_ended_on_pause_without_charge(local: MasterProcess) -> None:
    master = local.client()
    text = trainings.experiment(keys={"preemption_timeout": 1})
    number = master.create_experiment(text, files(train__py=DEAF)).id
    wait_for(lambda: any(trial.batches for trial in master.trials(number)), "its first report")
    master.pause(number)
    trial = only_trial(master, number)
    wait_for(lambda: all(a.get("endTime") for a in master.task(trial.task_id)["allocations"]), "the job's end", 120)
    assert (only_trial(master, number).state, only_trial(master, number).restarts) == ("PAUSED", 0)
    (attempt,) = master.task(trial.task_id)["allocations"]
    assert attempt["exitReason"] == "It was asked to leave (the experiment was paused) and was ended before it did"
    assert "did not leave in time" in log_text(master, trial.id)
    master.activate(number)
    wait_for(lambda: only_trial(master, number).batches == 2, "the report of the second attempt")
    assert only_trial(master, number).restarts == 0
    master.kill(number)
    ended_as(master, number, "CANCELED")


NOT_TEXT = r"""
import os
os.write(1, b"caf\xe9 \xff\xfe \x00 end\n")
os.write(2, b"\xc3(\n\xf0\x9f\x98")
"""


def test_output_that_is_no_text_is_kept_as_far_as_it_is(local: MasterProcess) -> None:
    master = local.client()
    number = master.create_experiment(trainings.experiment(), files(train__py=NOT_TEXT)).id
    ended_as(master, number, "COMPLETED")
    lines = log_text(master, only_trial(master, number).id).splitlines()
    assert "caf\ufffd \ufffd\ufffd \0 end" in lines
    assert "\ufffd(" in lines
    assert "\ufffd" in lines


ONE_LINE = """
import os
block = b"x" * (1 << 20)
for _ in range(100):
    os.write(1, block)
print(" end of it")
pid = os.getpid()
while b"runtime.zip" not in open(f"/proc/{pid}/cmdline", "rb").read():
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
with open(f"/proc/{pid}/status") as file:
    print("peak", next(line.split()[1] for line in file if line.startswith("VmHWM")))
"""


def test_huge_line_uses_little_memory_and_keeps_its_end(local: MasterProcess) -> None:
    master = local.client()
    before = _peak(local.pid)
    text = trainings.experiment(keys={"entrypoint": ["python3", "-u", "train.py"]})
    number = master.create_experiment(text, files(train__py=ONE_LINE)).id
    ended_as(master, number, "COMPLETED", 300)
    trial = only_trial(master, number)
    found = local.det("trial", "logs", str(trial.id), "--tail", "12").stdout.splitlines()
    peak = next(int(line.split()[-1]) for line in found if "peak " in line)
    assert peak < 100_000, "KiB of the runtime"
    assert _peak(local.pid) - before < 300_000, "KiB of the master"
    assert any(line.endswith(" end of it") for line in found)


def _peak(pid: int) -> int:
    """KiB of resident memory that a process had at most."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1])
