"""What runs in the job keeps to Python 3.8 and its standard library."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.process.runtime.test_core_in_job import TRAIN
from tests.process.runtime.test_whole_job import archive
from trainmaster.runtime.archive import DOORS, build_runtime_zip

PACKAGE = Path(trainmaster.__file__).parent
IN_JOB = sorted(path for part in ("runtime", "launchers", "core", *DOORS) for path in (PACKAGE / part).rglob("*.py"))
# The framework a module is for may be imported there, by `importlib` or inside a function.
FRAMEWORKS = {"torch", "tensorflow", "horovod", "deepspeed"}
# What stands in an image beside the framework of a door.
BESIDE = {"pytorch": {"deepspeed", "numpy", "torch"}, "keras": {"keras", "numpy", "torch"}}


def find_python38() -> str | None:
    """A Python 3.8: named by TRAINMASTER_PYTHON38, on PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        os.environ.get("TRAINMASTER_PYTHON38"),
        shutil.which("python3.8"),
        *sorted(str(path) for path in pyenv.glob("3.8*/bin/python3")),
        "/usr/bin/python3.8",
    ]
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            asked = subprocess.run([candidate, "-c", "import sys; print(sys.version_info[:2])"], stdout=subprocess.PIPE)
            if asked.stdout.strip() == b"(3, 8)":
                return candidate
    return None


PYTHON38 = find_python38()
# Debian packages no Python 3.8 any more: scripts/test cannot install it where neither PATH nor pyenv has one.
needs_python38 = pytest.mark.skipif(PYTHON38 is None, reason="no Python 3.8: PATH, pyenv, TRAINMASTER_PYTHON38")


@pytest.mark.parametrize("path", IN_JOB, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_standard_library_and_our_own_are_imported(path: Any) -> None:
    part = path.relative_to(PACKAGE).parts[0]
    allowed = set(sys.stdlib_module_names) | (BESIDE.get(part, {part}) if part in DOORS else FRAMEWORKS)
    parts = {"runtime", "launchers", "core"} | ({part, "pytorch"} if part in DOORS else set())
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only: the code is also run from a zip"
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            ours = top == "trainmaster" and (not rest or rest.split(".")[0] in parts)
            assert ours or top in allowed, f"{path}:{node.lineno} imports {name}"


@pytest.mark.parametrize("path", IN_JOB, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_private_module_of_python_is_imported(path: Any) -> None:
    """They change without notice from one release to the next."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            assert top == "__future__" or not top.startswith("_"), f"{path}:{node.lineno} imports {name}"  # type: ignore[attr-defined]


@needs_python38
def test_everything_compiles_and_imports(tmp_path: Path) -> None:
    archive_path = tmp_path / "runtime.zip"
    archive_path.write_bytes(build_runtime_zip())
    program = """
import importlib, sys, zipfile
archive = sys.argv[1]
sys.path[:0] = [archive, archive + "/alias"]
for name in zipfile.ZipFile(archive).namelist():
    if not name.endswith(".py"):
        continue
    module = name[:-3].replace("/", ".")
    if module.startswith("alias."):
        module = module[len("alias."):].replace("without_ssh.", "determined.launch.")
    if module.endswith("__main__"):
        continue
    if module.endswith(".__init__"):
        module = module[:-len(".__init__")]
    if any(part in sys.argv[2].split(",") for part in module.split(".")[:2]):  # no framework is here
        compile(zipfile.ZipFile(archive).read(name), name, "exec")
        continue
    importlib.import_module(module)
    print(module)
"""
    done = subprocess.run(
        [str(PYTHON38), "-W", "error", "-I", "-c", program, str(archive_path), ",".join(DOORS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    read = set(done.stdout.split())
    assert {
        "determined.launch.torch_distributed",
        "determined.launch.horovod",
        "trainmaster.core.collectives_transport",
    } <= read


@needs_python38
def test_a_small_job_runs(stage: Any, tmp_path: Path) -> None:
    job, master = stage(
        [str(PYTHON38), "train.py"],
        context=archive(**{"train.py": TRAIN}),
        work={"checkpoint_storage": {"type": "shared_fs", "host_path": str(tmp_path / "store")}},
    )
    (tmp_path / "store").mkdir()
    status, output = job.run(python=str(PYTHON38))
    assert status == 0, output + "\n".join(master.lines())
    assert [record["steps_completed"] for record in master.kinds("checkpoint")] == [3]
    assert len(master.kinds("metrics")) == 6


def test_the_archive_is_the_same_each_time() -> None:
    assert build_runtime_zip() == build_runtime_zip()
