"""The published client of Determined 0.38.1 in an environment of its own, built once per machine.

By hand: `python -m tests.support.reference.reference` builds it and prints its folder.
TRAINMASTER_DETERMINED names one that exists already.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

VERSION = "0.38.1"
# TensorBoard: trials that name a class (`model_def:TrialClass`) write its events, and images for them have it.
REQUIREMENTS = ("setuptools<80", f"determined=={VERSION}", "tensorboard")
DEADLINE = 600  # seconds for the installation


class NoReference(RuntimeError):
    """The reference client cannot be had on this machine; the message says why."""


def environment() -> Path:
    """The virtual environment's folder. Raises NoReference."""
    told = os.environ.get("TRAINMASTER_DETERMINED")
    if told:
        if not (Path(told) / "bin" / "det").exists():
            raise NoReference(f"TRAINMASTER_DETERMINED is {told}, where there is no bin/det")
        return Path(told)
    return installed(f"determined-{VERSION}", REQUIREMENTS)


def installed(name: str, requirements: Sequence[str]) -> Path:
    """A virtual environment of just these packages, built once per machine. Raises NoReference."""
    return _built(_cache() / f"{name}-{_mark(' '.join(requirements))}", lambda folder: _install(folder, requirements))


def site_packages() -> Path:
    """Where the client's packages are, for a Python of the same version elsewhere. Raises NoReference."""
    (folder,) = (environment() / "lib").glob("python3*/site-packages")
    return folder


def training_environment(torch_python: Path) -> Path:
    """An environment whose `python3` has the published package and that interpreter's PyTorch, as a user of Determined
    would have installed them; the packages themselves stay where they are. Raises NoReference."""
    packages = site_packages()
    (torch,) = (torch_python.parent.parent / "lib").glob("python3*/site-packages")
    if packages.parent.name != torch.parent.name:
        raise NoReference(f"determined is installed for {packages.parent.name}, PyTorch for {torch.parent.name}")
    content = f"{packages}\n{torch}\n"

    def build(folder: Path) -> None:
        _run([str(torch_python), "-m", "venv", "--without-pip", str(folder)])
        (found,) = (folder / "lib").glob("python3*/site-packages")
        (found / "published.pth").write_text(content)

    return _built(_cache() / f"determined-{VERSION}-torch-{_mark(content)}", build)


def _cache() -> Path:
    told = os.environ.get("TRAINMASTER_CACHE")
    if told:
        return Path(told)
    if os.geteuid() == 0:
        return Path("/var/cache/trainmaster")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainmaster"


def _mark(content: str) -> str:
    """What decides the content of a folder decides its name."""
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _install(folder: Path, requirements: Sequence[str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *requirements])


def _built(folder: Path, build: Callable[[Path], None]) -> Path:
    done = folder / ".complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            build(folder)
            done.touch()
    return folder


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        raise NoReference(f"{command[0]} did not end within {DEADLINE} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise NoReference(f"`{' '.join(command[:4])} ...` failed: {lines[-1]}")


if __name__ == "__main__":
    print(environment())
