"""Compiles the NVML library of `nvml.c`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FIRST = "GPU-11111111-0000-0000-0000-000000000001"
SECOND = "GPU-22222222-0000-0000-0000-000000000002"
THIRD = "GPU-33333333-0000-0000-0000-000000000003"


def build_nvml(folder: Path) -> Path:
    """A folder for LD_LIBRARY_PATH that has `libnvidia-ml.so.1`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here: apt install gcc")
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("nvml.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder
