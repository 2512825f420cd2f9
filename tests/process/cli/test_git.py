"""The commit that an experiment's code is of: read by `det`, kept by the master, shown and compared."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import trainings
from tests.support.det_shell import Shell
from trainmaster.client.git_state import git_state
from trainmaster.client.master import Master
from trainmaster.config.git_state import MOST_DIFF, GitState
from trainmaster.config.masks import MASK

SECRET = "opensesame-7431"


def git(folder: Path, *arguments: str) -> str:
    person = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, on `main`; its code is below `code`."""
    folder = tmp_path / "repository"
    (folder / "code").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "code" / "train.py").write_text(trainings.COUNTING)
    (folder / "code" / "net.py").write_text("WIDTH = 3\n")
    (folder / "notes.txt").write_text("nothing\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


@pytest.fixture
def created(shell: Shell, api: Master, repository: Path) -> Iterator[Any]:
    """Create paused experiments from the repository's code; they are killed in the end."""
    (shell.cwd / "e.yaml").write_text("name: a\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n")
    made: list[int] = []

    def create() -> int:
        answer = shell.det("experiment", "create", "e.yaml", str(repository / "code"), "--paused", "--json").json()
        made.append(answer["id"])
        return made[-1]

    yield create
    for number in made:
        api.kill(number)


def test_commit_branch_remote_and_changes_are_kept_and_can_be_applied(
    shell: Shell, repository: Path, created: Any
) -> None:
    git(repository, "remote", "add", "origin", f"https://ada:{SECRET}@example.org/ada/cats.git")
    (repository / "code" / "net.py").write_text(f"WIDTH = 4\nAPI_KEY = '{SECRET}'\n")
    (repository / "code" / "new.py").write_text("pass\n")
    (repository / "notes.txt").write_text("of no concern\n")
    number = created()
    told = shell.det("experiment", "git", str(number), "--json").json()
    assert (told["commit"], told["branch"]) == (git(repository, "rev-parse", "HEAD"), "main")
    assert (told["committer"], told["remote"]) == ("Ada", f"https://ada:{MASK}@example.org/ada/cats.git")
    assert (told["changed_lines"], told["untracked"], told["diff_cut"]) == (3, 1, False)
    assert SECRET not in str(told)
    diff = shell.det("experiment", "git", str(number), "--diff").out
    assert "notes.txt" not in diff
    git(repository, "checkout", "--quiet", ".")
    subprocess.run(["git", "apply"], cwd=repository, input=diff, text=True, check=True)
    assert (repository / "code" / "net.py").read_text() == f"WIDTH = 4\nAPI_KEY = '{MASK}'\n"
    text = shell.det("experiment", "git", str(number)).out
    assert "changed since: 3 lines; 1 files in no commit" in text
    assert "branch:        main" in text


def test_comparison_shows_commits_that_differ(api: Master, repository: Path, created: Any) -> None:
    one = created()
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "two")
    other = created()
    compared = api.views.compare(experiments=[one, other])
    code = {setting.name: setting.values for setting in compared.settings if setting.part == "code"}
    assert len(set(code["commit"])) == 2
    assert (code["branch"], code["uncommitted"]) == (("main",), ("none",))


def test_fork_of_code_has_its_parents_commit(shell: Shell, api: Master, created: Any) -> None:
    parent = created()
    answer = api._http.request(
        "POST", "/api/v1/experiments", body={"config": _config(api, parent), "parentId": parent, "activate": False}
    )
    fork = answer["experiment"]["id"]
    assert api.views.git(fork) == api.views.git(parent) is not None
    api.kill(fork)


def _config(api: Master, number: int) -> str:
    return str(api.experiment(number).raw["originalConfig"])


def test_nothing_is_said_where_there_is_no_repository(shell: Shell, api: Master, tmp_path: Path) -> None:
    (shell.cwd / "train.py").write_text("pass\n")
    (shell.cwd / "e.yaml").write_text("name: a\nentrypoint: x\nsearcher: {name: single, metric: loss}\n")
    number = shell.det("experiment", "create", "e.yaml", ".", "--paused", "--json").json()["id"]
    told = shell.run("experiment", "git", str(number))
    assert (told.status, told.sentence) == (
        1,
        f"det: Experiment {number} names no commit: its code came from no git repository.",
    )
    api.kill(number)
    assert git_state(tmp_path / "absent") is None


def test_repository_without_commit_and_machine_without_git_say_nothing(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    assert git_state(empty) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(repository) is None


def test_detached_head_has_no_branch_and_large_diff_is_cut_at_a_line(
    api: Master, repository: Path, created: Any
) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    (repository / "code" / "net.py").write_text("é = 1234567\n" * (MOST_DIFF // 12))
    number = created()
    state = api.views.git(number)
    assert state is not None
    assert (state.branch, state.diff_cut) == ("", True)
    assert len(state.diff.encode()) <= MOST_DIFF
    assert state.diff.endswith("+é = 1234567\n")


def test_programs_of_the_repositorys_settings_do_not_run(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    git(repository, "config", "diff.external", str(script))
    git(repository, "config", "core.fsmonitor", str(script))
    git(repository, "config", "diff.words.textconv", str(script))
    (repository / ".gitattributes").write_text("*.py diff=words\n")
    (repository / "code" / "net.py").write_text("WIDTH = 9\n")
    ran.unlink(missing_ok=True)
    state = git_state(repository)
    assert state is not None
    assert "+WIDTH = 9" in state.diff
    assert not ran.exists()


@pytest.mark.parametrize(
    ("git_fields", "words"),
    [
        ({"commit": "HEAD; rm"}, "'HEAD; rm' is not the name of a commit"),
        ({"commit": "a" * 40, "branch": "b" * 3000}, "at most 1000 are allowed"),
    ],
)
def test_what_is_no_commit_is_refused(api: Master, git_fields: dict[str, Any], words: str) -> None:
    config = "name: a\nentrypoint: x\nsearcher: {name: single, metric: loss}\n"
    with pytest.raises(Exception, match=words):
        api._http.request("POST", "/api/v1/experiments", body={"config": config, "git": git_fields}, retry=False)


def test_text_that_the_database_does_not_take_is_stored_without_it() -> None:
    state = GitState.of(commit="a" * 40, branch="b\0c", diff="+x\0y\udc80\n")
    assert (state.branch, state.diff) == ("bc", "+xy?\n")


def test_fields_of_determineds_clients_are_kept(api: Master) -> None:
    config = "name: a\nentrypoint: x\nsearcher: {name: single, metric: loss}\n"
    fields = {"gitCommit": "b" * 40, "gitRemote": "r", "gitCommitter": "Ada", "gitCommitDate": "2024-01-01T00:00:00Z"}
    answer = api._http.request("POST", "/api/v1/experiments", body={"config": config, "activate": False, **fields})
    number = answer["experiment"]["id"]
    state = api.views.git(number)
    assert state is not None
    assert (state.commit, state.remote, state.committer) == ("b" * 40, "r", "Ada")
    api.kill(number)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('+password = "hunter22"', f'+password = "{MASK}"'),
        ("AWS_SECRET_ACCESS_KEY=abc/defghijklmno+p", f"AWS_SECRET_ACCESS_KEY={MASK}"),
        ('"auth": "abc"', f'"auth": "{MASK}"'),
        (f'x = "ghp_{"a" * 36}"', f'x = "{MASK}"'),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END", f"-----BEGIN RSA PRIVATE KEY-----{MASK}-----END"),
        ("token = tokenizer(x)", "token = tokenizer(x)"),
        ("next_token = 5", "next_token = 5"),
    ],
)
def test_secrets_of_a_diff_are_masked(line: str, shown: str) -> None:
    assert GitState.of(commit="a" * 40, diff=line).diff == shown
