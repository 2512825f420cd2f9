"""Builds runtime.zip: the code that runs in the job. Called by the master; standard library only."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from pathlib import Path
from types import CodeType
from typing import Dict

# The doors for frameworks, each named after the one that it imports from the image.
DOORS = ("accelerate", "keras", "lightning", "pytorch", "transformers")
_PARTS = (*DOORS, "core", "launchers", "runtime")


def build_runtime_zip() -> bytes:
    """Build the archive. The same code gives the same bytes (sorted entries, no times).

    Holds `__main__.py`, `trainmaster/` with its parts for jobs, and `alias/determined`, the package under
    which user code finds core as `determined`. Beside each source stands its bytecode for this Python: a job whose
    Python is of the same release starts in two thirds of the time, any other passes over it (zipimport). Bytecode is
    not compressed: unpacking would cost every job more than reading.
    """
    package = Path(__file__).resolve().parent.parent
    alias = package / "determined_alias"
    files: Dict[str, bytes] = {
        "__main__.py": (package / "runtime" / "start.py").read_bytes(),
        "trainmaster/__init__.py": (package / "__init__.py").read_bytes(),
    }
    for part in _PARTS:
        for path in (package / part).rglob("*.py"):
            files["trainmaster/" + path.relative_to(package).as_posix()] = path.read_bytes()
    for folder in ("determined", "without_ssh"):
        for path in (alias / folder).rglob("*.py"):
            if path != alias / "without_ssh" / "__init__.py":  # its modules are found through `determined.launch`
                files["alias/" + path.relative_to(alias).as_posix()] = path.read_bytes()
    files.update({name + "c": _bytecode(name, source) for name, source in files.items()})
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".pyc") else zipfile.ZIP_DEFLATED
            zipped.writestr(entry, files[name])
    return archive.getvalue()


def _bytecode(name: str, source: bytes) -> bytes:
    """Compile to a .pyc that is not compared with its source (PEP 552): the two always come together."""
    code: CodeType = compile(source, name, "exec", dont_inherit=True, optimize=2)  # without docstrings
    unchecked = (0b01).to_bytes(4, "little")
    # Up to version 2 the format has no references between objects, which depend on who else holds them.
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code, 2)
