"""Charliecloud's `ch-run` from Debian unstable on an older Debian: bookworm's has no `--write-fake`.

Like Apptainer (see there) it wants a newer C library, which comes along; `ch-run` starts nothing of its own, so that
the dynamic loader can be told by its command line.
"""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from tests.support.cluster import apptainer, packages
from tests.support.cluster.layout import Layout

PACKAGES = (
    *("charliecloud-runtime", "libc6", "libcjson1", "libfuse3-4", "libgc1", "libsquashfuse0", "zlib1g", "libzstd1"),
    *("liblzma5", "liblz4-1", "liblzo2-2"),
)


def install(layout: Layout) -> Path:
    """Install it unless it is there; the path of its command. Raises Unavailable."""
    prefix = layout.cache / "charliecloud"
    command = prefix / "ch-run"
    if command.exists():
        return command
    packages.install(packages.CONTAINERS)
    layout.cache.mkdir(parents=True, exist_ok=True)
    with (layout.cache / "charliecloud.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not command.exists():
            draft = layout.cache / "charliecloud.draft"
            for leftover in (draft, prefix):
                shutil.rmtree(leftover, ignore_errors=True)
            for package in apptainer.fetch(draft / "apt", PACKAGES):
                apptainer.run("dpkg-deb", "--extract", str(package), str(draft / "root"))
            shutil.rmtree(draft / "apt")
            draft.replace(prefix)
            libraries = next(prefix.glob("root/usr/lib/*-linux-gnu"))
            loader = next(libraries.glob("ld-linux-*.so.*"))
            text = f'#!/bin/sh\nexec {loader} --library-path {libraries} {prefix}/root/usr/bin/ch-run "$@"\n'
            (prefix / "draft").write_text(text)
            (prefix / "draft").chmod(0o755)
            (prefix / "draft").replace(command)
    return command
