"""Builds runtime.zip: the code that runs in the job. Called by the master; standard library only."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from pathlib import Path
from types import CodeType
from typing import Any, Dict

from trainmaster.runtime.start import TOGETHER

_PARTS = ("core", "launchers", "runtime")


def build_runtime_zip() -> bytes:
    """The archive as bytes; the same bytes for the same code (sorted, without times).

    Holds `__main__.py`, `trainmaster/{__init__.py,core,launchers,runtime}` and `alias/determined`, the
    package under which user code finds core as `determined`. Beside each source stands its bytecode for this
    Python: a job whose Python is of the same release starts in two thirds of the time, any other passes over it
    (zipimport). That of the runtime also stands in one piece (`start.py`). What every job reads is not packed:
    unpacking costs it more than reading.
    """
    package = Path(__file__).resolve().parent.parent
    alias = package / "runtime" / "alias"
    files: Dict[str, bytes] = {
        "__main__.py": (package / "runtime" / "start.py").read_bytes(),
        "trainmaster/__init__.py": (package / "__init__.py").read_bytes(),
    }
    for part in _PARTS:
        for path in (package / part).rglob("*.py"):
            if alias in path.parents:
                files["alias/" + path.relative_to(alias).as_posix()] = path.read_bytes()
            else:
                files["trainmaster/" + path.relative_to(package).as_posix()] = path.read_bytes()
    codes = {name: _compiled(name, source) for name, source in files.items()}
    files.update({name + "c": _bytecode(files[name], code) for name, code in codes.items()})
    files[TOGETHER] = importlib.util.MAGIC_NUMBER + _marshalled(
        {_module(name): (name.endswith("__init__.py"), code) for name, code in sorted(codes.items()) if _runs(name)}
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if _always_read(name) else zipfile.ZIP_DEFLATED
            zipped.writestr(entry, files[name])
    return archive.getvalue()


def _runs(name: str) -> bool:
    """Whether the runtime itself may need the module."""
    return name.startswith(("trainmaster/__init__", "trainmaster/runtime/"))


def _module(name: str) -> str:
    return name[: -len(".py")].replace("/", ".").replace(".__init__", "")


def _always_read(name: str) -> bool:
    return name in (TOGETHER, "__main__.pyc")


def _compiled(name: str, source: bytes) -> CodeType:
    return compile(source, name, "exec", dont_inherit=True, optimize=2)  # without docstrings


def _bytecode(source: bytes, code: CodeType) -> bytes:
    """A .pyc that is not compared with its source (PEP 552): the two come and go together."""
    unchecked = (0b01).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + _marshalled(code)


def _marshalled(value: Any) -> bytes:
    # Up to version 2 the format has no references between objects, which depend on who else holds them.
    return marshal.dumps(value, 2)
