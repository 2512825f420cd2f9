"""Installs the Debian packages that the tests need, if they are missing."""

from __future__ import annotations

import os
import subprocess

SLURM = ("slurm-wlm", "munge")
ACCOUNTING = ("slurmdbd", "mariadb-server")
CONTAINERS = (
    "debootstrap",
    "squashfs-tools",
    "squashfuse",
    "fuse2fs",
    "fuse-overlayfs",
    "uidmap",
    "fakeroot",
    "patchelf",
    "debian-archive-keyring",
    "ca-certificates",
)


class Unavailable(Exception):
    """A part cannot be had on this machine; the message says why in one line."""


def missing(names: tuple[str, ...]) -> list[str]:
    """Those of `names` that dpkg does not list as installed."""
    try:
        listing = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\\n"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise Unavailable("this is no Debian-like system (dpkg-query does not work)") from None
    installed = {line.split(" ", 1)[1] for line in listing.splitlines() if line.startswith("installed ")}
    return [name for name in names if name not in installed]


def install(names: tuple[str, ...]) -> None:
    """Install what is missing of `names`. Raises Unavailable when that cannot be done here."""
    wanted = missing(names)
    if not wanted:
        return
    if os.geteuid() != 0:
        raise Unavailable(f"not root, and these Debian packages are missing: {' '.join(wanted)}")
    # RUNLEVEL=1 keeps package scripts from starting daemons with the distribution's own configuration.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (
        ["apt-get", "-q", "update"],
        ["apt-get", "-q", "install", "--yes", "--no-install-recommends", *wanted],
    ):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"`{' '.join(command)}` failed: {last}")
