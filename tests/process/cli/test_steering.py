"""Verbs that change something; the API confirms the change."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.cli.conftest import Finished
from tests.support import trainings
from tests.support.det_shell import Done, Shell
from tests.support.master import wait_ended, wait_for
from trainmaster.client.errors import NoSuchThing
from trainmaster.client.master import Master


def created(done: Done) -> int:
    (line,) = [line for line in done.out.splitlines() if line.startswith("Created experiment ")]
    return int(line.removeprefix("Created experiment "))


@pytest.fixture
def running(shell: Shell, api: Master, long_config: Path) -> int:
    """An experiment that has trained a little and would go on for long."""
    number = created(shell.det("experiment", "create", "long.yaml", "."))
    wait_for(lambda: any(t.batches >= 1 for t in api.trials(number)), "the first report")
    return number


def gone(look: Callable[[], object]) -> bool:
    try:
        look()
    except NoSuchThing:
        return True
    return False


def test_create_sends_the_folder_and_the_configuration(shell: Shell, api: Master) -> None:
    (shell.cwd / "code").mkdir()
    (shell.cwd / "code/train.py").write_text("import more; more.say()")
    (shell.cwd / "code/secret.txt").write_text("x")
    (shell.cwd / "code/.detignore").write_text("secret.txt\n")
    (shell.cwd / "more.py").write_text("import os\ndef say(): print('files:', sorted(os.listdir()))")
    (shell.cwd / "e.yaml").write_text(trainings.experiment(keys={"name": "sent"}))
    done = shell.det("experiment", "create", "e.yaml", "code", "-i", "more.py", "--config", "description=over there")
    number = created(done)
    assert "Preparing files to send to master... 81 B and 2 files" in done.out
    ended = wait_ended(api, number)
    assert (ended.name, ended.state) == ("sent", "COMPLETED")
    assert ended.description == "over there"
    (trial,) = api.trials(number)
    (line,) = [line.log for line in api.logs(trial.id) if line.log.startswith("files: ")]
    assert "'more.py', 'train.py'" in line
    assert "secret.txt" not in line


def test_create_with_overrides(shell: Shell, api: Master, long_config: Path) -> None:
    done = shell.det(
        "experiment", "create", "long.yaml", ".", "--paused", "--json",
        "--config", "name=changed", "--config", "hyperparameters.epochs=1", "--config", "labels=[x, y]",
    )  # fmt: skip
    made = done.json()
    assert (made["name"], made["state"], made["labels"]) == ("changed", "STATE_PAUSED", ["x", "y"])
    assert api.experiment(made["id"]).raw["config"]["hyperparameters"]["epochs"]["val"] == 1
    shell.det("experiment", "activate", str(made["id"]))
    assert wait_ended(api, made["id"]).state == "COMPLETED"


def test_create_and_follow(shell: Shell, api: Master, long_config: Path) -> None:
    done = shell.det("experiment", "create", "long.yaml", ".", "-f", "--config", "hyperparameters.epochs=3")
    number = created(done)
    (trial,) = api.trials(number)
    assert (trial.state, trial.batches) == ("COMPLETED", 3)
    assert f"Following first trial with ID {trial.id}" in done.err
    assert f"To reopen log stream, run: det trial logs -f {trial.id}" in done.err
    for line in api.logs(trial.id):
        assert line.message in done.out


def test_interrupted_following_leaves_the_experiment_alone(shell: Shell, api: Master, long_config: Path) -> None:
    with shell.start("experiment", "create", "long.yaml", ".", "-f") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "starting after epoch 0" in line:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    number = max(e.id for e in api.experiments())
    assert f"Experiment {number} continues. To end it, run: det experiment kill {number}" in err
    assert not api.experiment(number).ended_for_good
    shell.det("experiment", "kill", str(number))
    wait_ended(api, number)


@pytest.mark.parametrize(
    ("text", "overrides", "complaints"),
    [
        (
            "name: a\nentrypoint: x\nsearcher:\n  name: random\n  metric: e\n  max_trails: 4\n  max_trials: 4\n",
            [],
            ["e.yaml:6: searcher.max_trails: unknown key; did you mean max_trials?"],
        ),
        (
            "name: a\nentrypoint: x\nsearcher: {name: single, metric: e}\nresources:\n  slots_per_trial: two\n",
            [],
            ["e.yaml:5: resources.slots_per_trial: a whole number is wanted, found the text 'two'"],
        ),
        (
            "entrypoint: x\nsearcher:\n  name: single\n  metric: e\nmax_restarts: -1\n",
            ["searcher.smaler_is_better=true"],
            [
                "e.yaml:5: max_restarts: must be at least 0, found -1",
                "--config searcher.smaler_is_better=true: searcher.smaler_is_better: unknown key; "
                "did you mean smaller_is_better?",
            ],
        ),
        ("name: [a\n", [], ["e.yaml:2: "]),
        ("name: [a\n", ["name=b"], ["e.yaml:2: "]),
        ("name: a\nname: b\n", [], ["e.yaml:2: name: "]),
        ("just text\n", [], ["e.yaml:1: "]),
    ],
)
def test_errors_of_a_file_have_lines_and_nothing_is_created(
    shell: Shell, api: Master, text: str, overrides: list[str], complaints: list[str]
) -> None:
    before = [e.id for e in api.experiments(archived=None)]
    (shell.cwd / "e.yaml").write_text(text)
    done = shell.run("experiment", "create", "e.yaml", *[part for o in overrides for part in ("--config", o)])
    assert done.status == 1
    lines = sorted(done.err.splitlines())
    for complaint, line in zip(sorted(complaints), lines, strict=False):
        assert line.startswith(complaint), done.err
    assert [e.id for e in api.experiments(archived=None)] == before


def test_a_wrong_file_has_no_preview(shell: Shell) -> None:
    (shell.cwd / "e.yaml").write_text("entrypoint: x\nsearcher: {name: randon, metric: e}\n")
    done = shell.run("preview-search", "e.yaml")
    assert (done.status, done.out) == (1, "")
    assert "randon" in done.err
    (shell.cwd / "e.yaml").write_text("searcher: {name: single\n")
    done = shell.run("preview-search", "e.yaml")
    assert (done.status, done.err.startswith("e.yaml:")) == (1, True)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda cwd: None, "det: e.yaml cannot be read: No such file or directory."),
        (lambda cwd: (cwd / "e.yaml").mkdir(), "det: e.yaml cannot be read: Is a directory."),
        (lambda cwd: (cwd / "e.yaml").write_bytes(b"\xff"), "det: e.yaml is not UTF-8 text."),
    ],
)
def test_a_file_that_cannot_be_read(shell: Shell, make: Callable[[Path], object], sentence: str) -> None:
    make(shell.cwd)
    done = shell.run("experiment", "create", "e.yaml")
    assert (done.status, done.sentence) == (1, sentence)


def test_too_many_slots_are_refused_before_anything_is_created(shell: Shell, api: Master, long_config: Path) -> None:
    before = len(api.experiments(archived=None))
    done = shell.run("experiment", "create", "long.yaml", ".", "--config", "resources.slots_per_trial=5")
    assert done.status == 1
    assert "slots" in done.sentence
    assert len(api.experiments(archived=None)) == before


def test_pause_and_activate(shell: Shell, api: Master, running: int) -> None:
    assert shell.det("experiment", "pause", str(running)).out == f"Paused experiment {running}\n"
    assert api.experiment(running).state == "PAUSED"
    wait_for(lambda: api.checkpoints(running), "the checkpoint of the paused trial")
    assert shell.det("experiment", "activate", str(running)).out == f"Activated experiment {running}\n"
    assert api.experiment(running).state not in ("PAUSED", "CANCELED")
    assert shell.det("experiment", "kill", str(running)).out == f"Killed experiment {running}\n"
    assert wait_ended(api, running).state == "CANCELED"


def test_cancel_lets_the_trial_save(shell: Shell, api: Master, running: int) -> None:
    assert shell.det("experiment", "cancel", str(running)).out == f"Canceled experiment {running}\n"
    assert wait_ended(api, running).state == "CANCELED"
    assert len(api.checkpoints(running)) == 1
    done = shell.run("experiment", "wait", str(running))
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith(f"det: Experiment {running} ended as CANCELED")
    again = shell.det("experiment", "kill", str(running))
    assert again.out == f"Experiment {running} has already ended: CANCELED.\n"
    refused = shell.run("experiment", "activate", str(running))
    assert (refused.status, "CANCELED" in refused.sentence) == (1, True)


def test_kill_a_trial(shell: Shell, api: Master, running: int) -> None:
    (trial,) = api.trials(running)
    assert shell.det("trial", "kill", str(trial.id)).out == f"Killed trial {trial.id}\n"
    assert wait_ended(api, running).state in ("CANCELED", "ERROR", "COMPLETED")
    assert api.trial(trial.id).state == "CANCELED"
    assert "has already ended" in shell.det("trial", "kill", str(trial.id)).out


def test_job_list_shows_waiting_jobs_and_reasons(shell: Shell, api: Master, running: int) -> None:
    waiting = created(shell.det("experiment", "create", "long.yaml", ".", "--config", "resources.slots_per_trial=4"))
    wait_for(lambda: [j for j in api.jobs() if j.entity_id == str(waiting) and j.explanation], "an explanation")
    rows = {row["Job Name"]: row for row in shell.det("job", "list").table()}
    assert rows[f"test ({running})"]["State"] == "SCHEDULED"
    assert rows[f"test ({running})"]["Slots (acquired/needed)"] == "1/1"
    assert rows[f"test ({waiting})"]["State"] == "QUEUED"
    assert rows[f"test ({waiting})"]["Why It Waits"] != ""
    in_order = [row["ID"] for row in shell.det("job", "list", "--csv").csv()]
    assert in_order == [job["jobId"] for job in shell.det("job", "list", "--json").json()]
    assert [row["ID"] for row in shell.det("j", "ls", "--reverse", "--csv").csv()] == in_order[::-1]
    assert shell.det("job", "list", "-p", "default", "--csv").csv() != []
    for number in (waiting, running):
        shell.det("experiment", "kill", str(number))
        wait_ended(api, number)


def test_delete(shell: Shell, api: Master) -> None:
    (shell.cwd / "train.py").write_text(trainings.COUNTING)
    (shell.cwd / "e.yaml").write_text(trainings.experiment(epochs=1))
    number = created(shell.det("experiment", "create", "e.yaml", "."))
    wait_ended(api, number)
    (checkpoint,) = api.checkpoints(number)
    from trainmaster.client.checkpoint_files import folder

    files = folder(checkpoint)
    assert files.is_dir()
    question = f"Delete experiment {number} with all its checkpoints, metrics and logs? [y/N] "
    kept = shell.at_terminal("experiment", "delete", str(number), typed={question: "n"})
    assert (kept.status, "Nothing was deleted." in kept.out) == (1, True)
    assert api.experiment(number).state == "COMPLETED"
    done = shell.at_terminal("experiment", "delete", str(number), typed={question: "yes"})
    assert (done.status, f"Deletion of experiment {number} is in progress" in done.out) == (0, True)
    wait_for(lambda: gone(lambda: api.experiment(number)), "the experiment to be gone")
    assert not files.exists()


def test_download(shell: Shell, api: Master, finished: Finished) -> None:
    checkpoint = api.checkpoints(finished.id)[0]
    done = shell.det("checkpoint", "download", checkpoint.uuid)
    copied = shell.cwd / "checkpoints" / checkpoint.uuid
    assert done.out == f"Copied {checkpoint.size} B in 2 files to:\ncheckpoints/{checkpoint.uuid}\n"
    assert json.loads((copied / "state.json").read_text()) == {"epochs": 4}
    assert {p.name for p in copied.iterdir()} == set(checkpoint.resources)
    assert shell.det("checkpoint", "download", checkpoint.uuid, "-q", "-o", "a/b").out == "a/b\n"
    assert (shell.cwd / "a/b/state.json").is_file()
    assert [p.name for p in (shell.cwd / "a").iterdir()] == ["b"]
    again = shell.run("checkpoint", "download", checkpoint.uuid)
    assert (again.status, again.sentence) == (
        1,
        f"det: checkpoints/{checkpoint.uuid} already exists; name another folder.",
    )


def test_a_damaged_checkpoint_is_not_copied(shell: Shell, api: Master, finished: Finished) -> None:
    from trainmaster.client.checkpoint_files import folder

    checkpoint = api.checkpoints(finished.id)[1]
    state = folder(checkpoint) / "state.json"
    whole = state.read_text()
    state.write_text("")
    try:
        done = shell.run("checkpoint", "download", checkpoint.uuid, "-o", "out")
    finally:
        state.write_text(whole)
    assert done.status == 1
    assert done.sentence.endswith(f"is damaged: state.json is missing or does not have {len(whole)} bytes.")
    assert list(shell.cwd.iterdir()) == []
