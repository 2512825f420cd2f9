"""The published client of Determined 0.38.1 in an environment of its own, built once per machine.

By hand: `python -m tests.contract.reference` builds it and prints its folder. TRAINMASTER_DETERMINED names one that
exists already.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.38.1"
REQUIREMENTS = ("setuptools<80", f"determined=={VERSION}")
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
    return _built(_cache() / f"determined-{VERSION}")


def _cache() -> Path:
    told = os.environ.get("TRAINMASTER_CACHE")
    if told:
        return Path(told)
    if os.geteuid() == 0:
        return Path("/var/cache/trainmaster")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainmaster"


def _built(folder: Path) -> Path:
    done = folder / ".complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, *REQUIREMENTS])
            done.touch()
    return folder


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        raise NoReference(f"{command[0]} did not end within {DEADLINE} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise NoReference(f"the installation of determined=={VERSION} failed: {lines[-1]}")


if __name__ == "__main__":
    print(environment())
