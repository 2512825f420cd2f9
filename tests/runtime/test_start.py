"""How the runtime is read: in one piece where the job's Python is of the master's release, else as any zip."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from trainmaster.runtime.archive import build_runtime_zip
from trainmaster.runtime.start import TOGETHER

# As a job is started (containers.base.runtime_arguments), but for what `__main__` does in the end.
READS = """
import sys, zipimport
package = sys.path[0] = sys.argv[1]
start = {"__name__": "start"}
exec(zipimport.zipimporter(package).get_code("__main__"), start)
start["read_together"](package)
import trainmaster.runtime.main, trainmaster.runtime.node, trainmaster.core.errors
for name in ("runtime.main", "runtime.node", "core.errors"):
    print(type(sys.modules["trainmaster." + name].__loader__).__name__)
try:
    trainmaster.runtime.main.main(["/nowhere"])
finally:
    print(trainmaster.runtime.main.main.__code__.co_filename)
"""


@pytest.mark.parametrize("same", [True, False])
def test_modules_are_read_in_one_piece_by_the_same_python_only(tmp_path, same):
    package = tmp_path / "runtime.zip"
    package.write_bytes(build_runtime_zip())
    if not same:
        _change(package, {TOGETHER: b"\0\0\r\n" + b"of another release"})
    done = subprocess.run([sys.executable, "-S", "-c", READS, str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    own = "Together" if same else "zipimporter"
    *loaders, file = done.stdout.split()
    assert loaders == [own, own, "zipimporter"]
    assert file.endswith("trainmaster/runtime/main.py")
    assert "job.json is missing" in done.stderr


def test_a_fault_shows_where_it_was(tmp_path):
    """The sources are in the zip, and a traceback names their lines."""
    package = tmp_path / "runtime.zip"
    package.write_bytes(build_runtime_zip())
    program = READS.partition("try:")[0] + "trainmaster.runtime.main.main(None)"
    done = subprocess.run([sys.executable, "-S", "-c", program, str(package)], capture_output=True, text=True)
    assert 'trainmaster/runtime/main.py", line ' in done.stderr


def _change(package, files):
    before = zipfile.ZipFile(package)
    contents = {name: before.read(name) for name in before.namelist()}
    before.close()
    with zipfile.ZipFile(package, "w") as changed:
        for name, content in {**contents, **files}.items():
            changed.writestr(name, content)
