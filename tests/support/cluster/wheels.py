"""Builds wheels that no registry has, once, from their sources into the cache.

Each is built in an environment of its own, which is removed afterwards. What fails says so in one line; the compiler's
words are kept beside the wheel.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import packages
from tests.support.cluster.layout import Layout
from tests.support.cluster.packages import Unavailable


@dataclass(frozen=True)
class Source:
    """How a wheel is made of what the registry has."""

    needs: tuple[str, ...]  # what the environment that builds it holds
    settings: tuple[tuple[str, str], ...] = ()  # environment variables
    debian: tuple[str, ...] = ()  # packages of this machine


SOURCES = {
    "deepspeed==0.19.8": Source(needs=("setuptools<80", "wheel", "packaging"), settings=(("DS_BUILD_OPS", "0"),)),
    "horovod==0.28.1": Source(
        # Its operation for TensorFlow is compiled against this very TensorFlow.
        needs=("tensorflow-cpu==2.13.1", "numpy<2", "setuptools<70", "wheel", "cmake==3.31.*"),
        settings=(
            ("HOROVOD_WITH_GLOO", "1"),
            ("HOROVOD_WITHOUT_MPI", "1"),
            ("HOROVOD_WITH_TENSORFLOW", "1"),
            ("HOROVOD_WITHOUT_PYTORCH", "1"),
            ("HOROVOD_WITHOUT_MXNET", "1"),
        ),
        debian=("g++", "make", "python3-dev"),
    ),
}


def build(layout: Layout, name: str, python: str) -> Path:
    """The wheel of `name`, one of SOURCES, for a release of Python as "3.11". Raises Unavailable."""
    source = SOURCES[name]
    mark = hashlib.sha256(repr((name, source, python)).encode()).hexdigest()[:12]
    folder = layout.cache / "wheels" / f"{name.replace('==', '-')}-{mark}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            packages.install(source.debian)
            draft = folder.with_name(f"{folder.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            _build(name, source, _interpreter(python), draft)
            shutil.rmtree(draft / "venv")
            draft.replace(folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _build(name: str, source: Source, python: str, draft: Path) -> None:
    bin_folder = draft / "venv" / "bin"
    environment = {**os.environ, **dict(source.settings), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    pip = [str(bin_folder / "python"), "-m", "pip", "--disable-pip-version-check"]
    log = draft.with_suffix(".log")
    with log.open("w") as output:
        for command in (
            [python, "-m", "venv", str(draft / "venv")],
            [*pip, "install", "--quiet", "--no-cache-dir", *source.needs],
            [*pip, "wheel", "--verbose", "--no-deps", "--no-build-isolation", "--wheel-dir", str(draft), name],
        ):
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
            )
            if done.returncode != 0:
                raise Unavailable(f"the wheel of {name} cannot be built: {log} says why")


def _interpreter(wanted: str) -> str:
    """A Python of that release on this machine: a wheel with compiled code fits one only."""
    for candidate in (f"/usr/bin/python{wanted}", f"/usr/local/bin/python{wanted}", sys.executable):
        test = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        if not Path(candidate).exists():
            continue
        done = subprocess.run([candidate, "-c", test], capture_output=True, text=True, check=False)
        if done.stdout.strip() == wanted:
            return candidate
    raise Unavailable(f"there is no Python {wanted} with its venv module, for which the wheel has to be built")
