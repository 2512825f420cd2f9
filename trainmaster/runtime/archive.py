"""Builds runtime.zip: the code that runs in the job. Called by the master; standard library only."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Dict

_PARTS = ("core", "launchers", "runtime")
_MAIN = b"""import sys

if sys.version_info < (3, 8):
    sys.exit("trainmaster: the job's image needs Python 3.8 or newer, this is " + sys.version.split()[0])
from trainmaster.runtime.main import main

sys.exit(main(sys.argv[1:]))
"""


def build_runtime_zip() -> bytes:
    """The archive as bytes; the same bytes for the same code (stored, sorted, without times).

    Holds `__main__.py`, `trainmaster/{__init__.py,core,launchers,runtime}` and `alias/determined`, the
    package under which user code finds core as `determined`.
    """
    package = Path(__file__).resolve().parent.parent
    alias = package / "runtime" / "alias"
    files: Dict[str, bytes] = {
        "__main__.py": _MAIN,
        "trainmaster/__init__.py": (package / "__init__.py").read_bytes(),
    }
    for part in _PARTS:
        for path in (package / part).rglob("*.py"):
            if alias in path.parents:
                files["alias/" + path.relative_to(alias).as_posix()] = path.read_bytes()
            else:
                files["trainmaster/" + path.relative_to(package).as_posix()] = path.read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as zipped:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, files[name])
    return archive.getvalue()


def unpack_runtime_zip(archive: Path, target: Path) -> None:
    """Unpack next to the job: imports then come from a local disk and are compiled once, not in every
    rank."""
    with zipfile.ZipFile(str(archive)) as zipped:
        zipped.extractall(str(target))
