"""How the runtime is read from its zip: bytecode for the master's release of Python, sources for any other."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trainmaster.runtime.archive import build_runtime_zip

# As a job is started (containers.base.runtime_arguments), but for what `__main__` does in the end.
READS = """
import sys
sys.path[0] = sys.argv[1]
import trainmaster.runtime.main, trainmaster.runtime.node
"""


def run(program: Any, package: Any) -> Any:
    return subprocess.run([sys.executable, "-S", "-c", program, str(package)], capture_output=True, text=True)


@pytest.mark.parametrize("same", [True, False])
def test_bytecode_is_read_by_the_same_python_only(tmp_path: Path, same: bool) -> None:
    """Docstrings are in the sources alone."""
    package = tmp_path / "runtime.zip"
    package.write_bytes(build_runtime_zip())
    if not same:
        _as_of_another_release(package)
    done = run(READS + "print(trainmaster.runtime.main.main.__doc__ is None)", package)
    assert done.stdout.strip() == str(same), done.stderr


def test_a_fault_shows_where_it_was(tmp_path: Path) -> None:
    """The sources are in the zip, and a traceback names their lines."""
    package = tmp_path / "runtime.zip"
    package.write_bytes(build_runtime_zip())
    done = run(READS + "trainmaster.runtime.main.main(None)", package)
    assert 'trainmaster/runtime/main.py", line ' in done.stderr


def test_no_job_pays_for_the_http_client_of_the_library(tmp_path: Path) -> None:
    """It takes longer to import than the whole runtime: `runtime.connection` stands for it."""
    package = tmp_path / "runtime.zip"
    package.write_bytes(build_runtime_zip())
    done = run(READS + "import trainmaster.core; print(*sys.modules)", package)
    read = set(done.stdout.split())
    assert "trainmaster.runtime.supervise" in read, done.stderr
    assert not read & {"http.client", "email", "ssl"}


def _as_of_another_release(package: Any) -> None:
    before = zipfile.ZipFile(package)
    contents = {name: before.read(name) for name in before.namelist()}
    before.close()
    with zipfile.ZipFile(package, "w") as changed:
        for name, content in contents.items():
            if name.endswith(".pyc"):
                assert content.startswith(importlib.util.MAGIC_NUMBER)
                content = b"\0\0\r\n" + content[4:]
            changed.writestr(name, content)
