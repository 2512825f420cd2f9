"""Builds runtime.zip: the code that runs in the job. Called by the master; standard library only."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from pathlib import Path
from typing import Dict

_PARTS = ("core", "launchers", "runtime")
# A job's first and last tenths of a second are paid by every trial. Python takes itself apart, which nobody needs any
# more, until all modules are read (main goes on from there): what is read stays, there is no garbage to look for.
_MAIN = b"""import gc
import os
import sys

if sys.version_info < (3, 8):
    sys.exit("trainmaster: the job's image needs Python 3.8 or newer, this is " + sys.version.split()[0])
gc.disable()
from trainmaster.runtime.main import main

status = main(sys.argv[1:])
try:
    sys.stdout.flush()
    sys.stderr.flush()
except OSError:
    pass
os._exit(status)
"""


def build_runtime_zip() -> bytes:
    """The archive as bytes; the same bytes for the same code (sorted, without times).

    Holds `__main__.py`, `trainmaster/{__init__.py,core,launchers,runtime}` and `alias/determined`, the
    package under which user code finds core as `determined`. Beside each source stands its bytecode for this
    Python: a job whose Python is of the same release starts in two thirds of the time, any other passes over it
    (zipimport). What every job reads is not packed: unpacking costs it more than reading.
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
    files.update({name + "c": _bytecode(name, source) for name, source in files.items()})
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if _always_read(name) else zipfile.ZIP_DEFLATED
            zipped.writestr(entry, files[name])
    return archive.getvalue()


def _always_read(name: str) -> bool:
    return name.endswith(".pyc") and name.startswith(("__main__", "trainmaster/__init__", "trainmaster/runtime/"))


def _bytecode(name: str, source: bytes) -> bytes:
    """A .pyc that is not compared with its source (PEP 552): the two come and go together."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)  # without docstrings
    unchecked = (0b01).to_bytes(4, "little")
    # Up to version 2 the format has no references between objects, which depend on who else holds them.
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code, 2)
