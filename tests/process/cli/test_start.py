"""Starting `det`: it is fast, and its messages about wrong arguments are exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli.conftest import Finished
from tests.support.det_shell import Shell
from tests.support.master import MasterProcess, free_port
from trainmaster.version import VERSION

HEAVY = ("pydantic", "yaml", "fastapi", "sqlalchemy", "asyncio", "jinja2", "plumbum", "logging", "multiprocessing")
MODULES = """
import sys
from trainmaster.cli.det import main
status = main(sys.argv[1:])
print(" ".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


def unmeasured(shell: Shell) -> dict[str, str]:
    """Without the tests' own coverage, which imports a good deal."""
    return {key: value for key, value in shell.environment.items() if not key.startswith("COVERAGE")}


def modules(shell: Shell, *arguments: str) -> set[str]:
    command = [sys.executable, "-c", MODULES, *arguments]
    done = subprocess.run(command, env=unmeasured(shell), cwd=shell.cwd, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("verb", ["list", "list-trials {}", "describe {}", "wait {}"])
def test_reading_imports_nothing_heavy(shell: Shell, finished: Finished, verb: str) -> None:
    loaded = modules(shell, "experiment", *verb.format(finished.id).split())
    assert "trainmaster.cli.experiment" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not any(
        name.startswith(("trainmaster.config.", "trainmaster.master", "trainmaster.core")) for name in loaded
    )


def test_the_version_imports_next_to_nothing(shell: Shell) -> None:
    loaded = modules(shell, "--version")
    bare = [sys.executable, "-c", "import sys; print(*sys.modules)"]
    python = set(subprocess.run(bare, env=unmeasured(shell), capture_output=True, text=True, check=True).stdout.split())
    assert loaded - python - {"__future__"} == {
        "trainmaster",
        "trainmaster.cli",
        "trainmaster.cli.det",
        "trainmaster.version",
    }


def test_the_version_needs_no_master(shell: Shell) -> None:
    away = shell.with_(DET_MASTER="127.0.0.1:1")
    for arguments in (["--version"], ["-V"], ["-m", "nowhere", "--version"]):
        assert away.det(*arguments).out == f"det {VERSION}\n"


def test_versions_of_both_sides(shell: Shell, process: MasterProcess) -> None:
    import yaml

    printed = yaml.safe_load(shell.det("version").out)
    assert printed["client"] == {"version": VERSION}
    assert printed["master"]["version"] == VERSION
    assert printed["master"]["api_version"] == "0.38.1"
    assert len(printed["master"]["cluster_id"]) == 36
    assert printed["master_address"] == process.url


def test_unreachable_master_is_reported_in_one_sentence(shell: Shell) -> None:
    port = free_port()
    done = shell.with_(DET_MASTER=f"127.0.0.1:{port}").run("experiment", "list")
    assert done.status == 1
    assert done.sentence.startswith(f"det: The master at http://127.0.0.1:{port} does not answer (Connection refused).")
    done = shell.with_(DET_MASTER="http://login1:x").run("experiment", "list")
    assert (done.status, done.sentence) == (
        1,
        "det: 'http://login1:x' is not the address of a master; write for example http://login1:8080.",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["expermient", "list"], "det: there is no command 'expermient' (did you mean experiment?); `det help` lists"),
        (
            ["experiment", "creat", "x.yaml"],
            "det: there is no `det experiment creat` (did you mean create?); `det",
        ),
        (
            ["e", "set", "nmae", "3"],
            "det: there is no `det experiment set nmae` (did you mean name?); `det ex",
        ),
        (
            ["-m", "trial", "trial", "frobnicate"],
            "det: there is no `det trial frobnicate`; `det trial help` lists",
        ),
        (["experiment", "describe"], "the following arguments are required: experiment_ids"),
        (["experiment", "describe", "1,x"], "'1,x' is not a list of experiment ids such as 1,2"),
        (["experiment", "kill", "abc"], "'abc' is not a whole number of at least 1"),
        (["experiment", "list", "--limit", "0"], "'0' is not a whole number of at least 1"),
        (["experiment", "list", "--json", "--csv"], "not allowed with argument"),
        (["experiment", "wait", "1", "--polling-interval", "-1"], "is not a number of seconds above 0"),
        (["experiment", "create", "x.yaml", "--config", "a"], "'a' is not KEY=VALUE, as in searcher.max_trials=8"),
        (["experiment", "create", "x.yaml", "-f", "--paused"], "exclude each other"),
        (["experiment", "delete", "1"], "add --yes to confirm without one"),
        (["trial", "logs", "1", "--head", "1", "--tail", "1"], "not allowed with argument"),
        (["trial", "logs", "1", "--head", "1", "-f"], "exclude each other"),
        (["trial", "logs", "1", "--level", "loud"], "invalid choice: 'LOUD'"),
        (["trial", "describe", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_wrong_usage_is_status_2(shell: Shell, arguments: list[str], message: str) -> None:
    done = shell.run(*arguments)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("arguments", [[], ["experiment"], ["e"], ["trial"], ["user"]])
def test_half_a_command_shows_the_help_and_fails(shell: Shell, arguments: list[str]) -> None:
    done = shell.run(*arguments)
    assert (done.status, done.out) == (2, "")
    assert "usage: det" in done.err


@pytest.mark.parametrize(
    "arguments", [["help"], ["--help"], ["experiment", "help"], ["e", "--help"], ["t", "logs", "-h"], ["c", "help"]]
)
def test_help_is_no_failure(shell: Shell, arguments: list[str]) -> None:
    assert "usage: det" in shell.det(*arguments).out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("experiment describe 99999", "det: not found: There is no experiment 99999."),
        ("experiment list-trials 99999", "det: not found: There is no experiment 99999."),
        ("experiment list-checkpoints 99999", "det: not found: There is no experiment 99999."),
        ("experiment logs 99999", "det: not found: There is no experiment 99999."),
        ("experiment wait 99999", "det: not found: There is no experiment 99999."),
        ("experiment pause 99999", "det: not found: There is no experiment 99999."),
        ("experiment kill 99999", "det: not found: There is no experiment 99999."),
        ("experiment delete 99999 --yes", "det: not found: There is no experiment 99999."),
        ("trial describe 99999", "det: not found: There is no trial 99999."),
        ("trial logs 99999", "det: not found: There is no trial 99999."),
        ("trial logs -f 99999", "det: not found: There is no trial 99999."),
        ("trial kill 99999", "det: not found: There is no trial 99999."),
        ("trial story 99999", "det: not found: There is no trial 99999."),
        ("checkpoint download nonsense", "det: 'nonsense' is not the UUID of a checkpoint."),
    ],
)
def test_missing_object_gives_status_1_and_one_sentence(shell: Shell, arguments: str, sentence: str) -> None:
    done = shell.run(*arguments.split())
    assert (done.status, done.out, done.sentence) == (1, "", sentence)


def test_a_pipe_that_closes_early_is_no_failure(shell: Shell, finished: object) -> None:
    with shell.start("experiment", "list", "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


def test_ascii_terminal_replaces_unprintable_characters(shell: Shell, finished: object) -> None:
    shell = shell.with_(LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "Ziffern ??" in shell.det("experiment", "list").out


def test_the_installed_commands_are_these(shell: Shell, tmp_path: Path) -> None:
    for name in ("det", "trainmaster"):
        program = Path(sys.executable).with_name(name)
        done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout == f"{name} {VERSION}\n"
