"""What a job's runtime reads before the user's program runs: all trials pay for it."""

from __future__ import annotations

import subprocess
import sys

from trainmaster.runtime.archive import build_runtime_zip

COSTLY = {
    "argparse", "ast", "collections", "contextlib", "ctypes", "dataclasses", "email", "enum", "functools",
    "http.client", "inspect", "json", "logging", "pathlib", "queue", "re", "shutil", "signal", "socket", "ssl",
    "subprocess", "tarfile", "tempfile", "threading", "typing", "urllib.parse",
}  # fmt: skip


def test_no_costly_module_is_read_by_every_job(tmp_path):
    package = tmp_path / "runtime.zip"
    package.write_bytes(build_runtime_zip())
    program = (
        "import sys; sys.path[0] = sys.argv[1]\n"
        "import trainmaster.runtime.main, trainmaster.runtime.node\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program, str(package)], capture_output=True, text=True)
    read = set(done.stdout.split())
    assert "trainmaster.runtime.supervise" in read, done.stderr
    assert not read & COSTLY
