"""Apptainer from Debian unstable on an older Debian or Ubuntu, in a prefix of its own.

Bookworm has no Apptainer, and unstable's binaries want a newer C library than bookworm's. So the C library
comes along into the prefix, and the two binaries are told to use it. Apptainer finds its files relative to
its own executable when it stands outside /usr, so nothing outside the prefix changes. apt itself fetches the
packages, with a private package index, and checks the archive's signature and every checksum.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster import packages
from tests.support.cluster.layout import Layout
from tests.support.cluster.packages import Unavailable

ARCHIVE = os.environ.get("TRAINMASTER_DEBIAN_MIRROR", "http://deb.debian.org/debian")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LIBRARIES = ("libc6", "libseccomp2", "libsqlite3-0")
STAMP = "complete-2"  # raise the number when the steps below change


def install(layout: Layout) -> Path:
    """Install Apptainer unless it is there; the path of its command. Raises Unavailable."""
    prefix = layout.cache / "apptainer"
    if os.geteuid() == 0:
        _open_fuse()
    if (prefix / STAMP).exists():
        return layout.apptainer
    packages.install(packages.CONTAINERS)
    layout.cache.mkdir(parents=True, exist_ok=True)
    with (layout.cache / "apptainer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (prefix / STAMP).exists():
            _build(layout.cache / "apptainer.draft", prefix)
    return layout.apptainer


def _build(draft: Path, prefix: Path) -> None:
    for leftover in (draft, prefix):
        shutil.rmtree(leftover, ignore_errors=True)
    fetched = fetch(draft / "apt", ("apptainer", *LIBRARIES))
    unpacked = draft / "unpacked"
    unpacked.mkdir()
    for package in fetched:
        run("dpkg-deb", "--extract", str(package), str(unpacked / package.name.partition("_")[0]))
    shutil.copytree(unpacked / "apptainer" / "usr", prefix, symlinks=True)
    shutil.copytree(unpacked / "apptainer" / "etc", prefix / "etc", symlinks=True)
    libraries = prefix / "libs"
    libraries.mkdir()
    for name in LIBRARIES:
        for library in (unpacked / name).glob("usr/lib/*-linux-gnu/*.so*"):
            shutil.copy2(library, libraries / library.name, follow_symlinks=True)
    (prefix / "var" / "lib" / "apptainer" / "mnt" / "session").mkdir(parents=True)
    # `starter` takes the prefix to be three folders up, which on Debian's multi-arch paths is `lib`.
    for folder in ("etc", "var"):
        (prefix / "lib" / folder).symlink_to(Path("..") / folder)
    loader = next(libraries.glob("ld-linux-*.so.*"))
    for binary in (prefix / "bin" / "apptainer", next(prefix.glob("lib/*/apptainer/bin/starter"))):
        run(
            "patchelf",
            "--set-interpreter",
            str(loader),
            "--force-rpath",
            "--set-rpath",
            str(libraries),
            str(binary),
        )
    version = run(str(prefix / "bin" / "apptainer"), "version").strip()
    (prefix / STAMP).write_text(version + "\n")
    shutil.rmtree(draft)


def fetch(folder: Path, names: Sequence[str]) -> list[Path]:
    """Download the newest `names` of unstable with apt's own checks, without touching the system's lists."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {ARCHIVE} unstable main\n")
    private = [
        f"-oDir::Etc::sourcelist={folder}/sources.list",
        "-oDir::Etc::sourceparts=/dev/null",
        "-oDir::Etc::preferences=/dev/null",
        "-oDir::Etc::preferencesparts=/dev/null",
        f"-oDir::State::lists={folder}/lists",
        "-oDir::State::status=/dev/null",
        f"-oDir::Cache={folder}/cache",
        f"-oAPT::Sandbox::User={'root' if os.geteuid() == 0 else ''}",
        "-q",
    ]
    run("apt-get", *private, "update")
    run("apt-get", *private, "download", *names, folder=folder)
    return sorted(folder.glob("*.deb"))


def _open_fuse() -> None:
    """Ordinary users mount images through /dev/fuse; some machines keep it for root."""
    fuse = Path("/dev/fuse")
    if fuse.exists() and fuse.stat().st_mode & 0o666 != 0o666:
        fuse.chmod(0o666)


def run(*argv: str, folder: Path | None = None) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(f"`{' '.join(argv[:3])} ...` failed: {last}")
    return done.stdout
