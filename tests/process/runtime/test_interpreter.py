"""The programs that a training runs with: environment modules, virtual and conda environments, lines of shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.runtime.test_whole_job import archive
from trainmaster.runtime.interpreter import origin, script_for

WHICH = "import sys; print('prefix', sys.prefix)"
MODULES = Path("/usr/share/modules/init/bash")  # of Debian's environment-modules


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments") / "of ours $(id)"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def ran(stage: Callable[..., Any], entrypoint: str, environment: dict[str, Any], **files: str) -> tuple[Any, Any, str]:
    job, master = stage(entrypoint, work={"config": {"environment": environment}}, context=archive(**files))
    _, output = job.run()
    return job.exit_record(), master, output


def test_a_virtual_environment_is_activated(stage: Callable[..., Any], venv: Path) -> None:
    record, master, _ = ran(stage, "python3 which.py", {"venv": str(venv)}, **{"which.py": WHICH})
    assert record["exit_code"] == 0
    assert f"prefix {venv}" in master.lines()


def test_a_virtual_environment_beside_the_code_is_activated(stage: Callable[..., Any], venv: Path) -> None:
    entrypoint = "python3 which.py; echo $MARK"
    files = {"which.py": WHICH, "own/bin/activate": "export MARK=activated\n"}
    record, master, _ = ran(stage, entrypoint, {"venv": "own"}, **files)
    assert (record["exit_code"], "activated" in master.lines()) == (0, True)


def test_one_that_is_not_there_is_named(stage: Callable[..., Any]) -> None:
    record, master, _ = ran(stage, "echo started", {"venv": "/no/such; touch x"})
    assert record["exit_code"] == 1
    assert (
        "environment.venv: /no/such; touch x is no virtual environment that can be read, on node" in record["evidence"]
    )
    assert "started" not in master.lines()


def test_lines_of_shell_run_last_and_hold_for_the_entrypoint(stage: Callable[..., Any], venv: Path) -> None:
    setup = 'export SAYS="$VIRTUAL_ENV"\nif true; then\n  ulimit -c 0\nfi'
    record, master, _ = ran(stage, 'echo "says $SAYS"', {"venv": str(venv), "setup": setup})
    assert (record["exit_code"], f"says {venv}" in master.lines()) == (0, True)


def test_a_failing_line_of_shell_ends_the_attempt(stage: Callable[..., Any]) -> None:
    record, master, _ = ran(stage, "echo started", {"setup": "false"})
    assert (record["exit_code"], "started" in master.lines()) == (1, False)


@pytest.mark.skipif(not MODULES.exists(), reason="there are no environment modules on this machine")
def test_environment_modules_are_loaded(
    stage: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "9.1").write_text("#%Module\nsetenv COMPILER nine\n")
    environment = {"modules": ["compiler/9.1"], "setup": ""}
    job, master = stage('echo "has $COMPILER"', work={"config": {"environment": environment}}, context=archive(a=""))
    process = job.start(MODULEPATH=str(tmp_path))
    process.communicate(timeout=60)
    assert "has nine" in master.lines()
    job, master = stage(
        "echo started", work={"config": {"environment": {"modules": ["none/1"]}}}, context=archive(a="")
    )
    process = job.start(MODULEPATH=str(tmp_path))
    process.communicate(timeout=60)
    assert "environment.modules: none/1 cannot be loaded, on node" in job.exit_record()["evidence"]
    assert "started" not in master.lines()


def test_a_missing_module_names_the_interpreter_and_its_source(stage: Callable[..., Any], venv: Path) -> None:
    files = {"t.py": "import no_such_module"}
    record, master, _ = ran(stage, "python3 t.py", {}, **files)
    expected = f"The interpreter that lacks it is {shutil.which('python3')} (from PATH of the node or image"
    assert expected in record["evidence"]
    assert any(expected in line for line in master.lines()) or expected in str(master.streams)
    record, _, _ = ran(stage, "python3 t.py", {"venv": str(venv)}, **files)
    assert f"The interpreter that lacks it is {venv}/bin/python3 (from environment.venv)" in record["evidence"]
    record, _, _ = ran(stage, f"{sys.executable} t.py", {}, **files)
    assert f"The interpreter that lacks it is {sys.executable} (the entrypoint names it)" in record["evidence"]


def test_conda_is_activated_by_its_own_hook() -> None:
    lines = script_for({"conda": "my env"})
    assert 'eval "$(conda shell.posix hook)"' in lines
    assert any(line.startswith("conda activate 'my env' || ") for line in lines)


def test_entrypoint_without_interpreter_names_python3() -> None:
    assert "python3" in origin({}, "torchrun train.py", {"PATH": "/usr/bin:/bin"})
