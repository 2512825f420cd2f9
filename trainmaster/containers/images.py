"""Finds images by name in the site's folder of images, which replaces a registry on clusters without internet.

The layout is Determined's: the image `org/name:tag` is the file (SIF, squashfs) or folder (an unpacked image)
`<root>/org/name:tag`. `trainmaster image` puts files there.
"""

from __future__ import annotations

import os
import re
import stat

SIF_MAGIC_OFFSET = 32  # bytes of launch script before "SIF_MAGIC", from the SIF specification
SIF_MAGIC = b"SIF_MAGIC"
SQUASHFS_MAGIC = b"hsqs"
LONGEST_NAME = 200

_PART = r"[A-Za-z0-9_][A-Za-z0-9._@:+-]*"
_NAME = re.compile(f"{_PART}(/{_PART})*")


class BadName(ValueError):
    """Not a valid image name; the message says why."""


def check_name(name: str) -> str:
    """Return a valid name unchanged. Raises BadName."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or ".." in name or name.endswith(".sha256"):
        raise BadName(
            f"{name!r:.220} is not an image name: write it like org/name:tag, with letters, digits and . _ - : @ "
            f"+, with at most {LONGEST_NAME} characters, no '..' and no slash at its ends."
        )
    return name


def below(root: str | None, name: str) -> str | None:
    """Return the path of the image called `name` below `root`; None when it does not exist."""
    if not root or ".." in name.split("/") or name.startswith("/"):
        return None
    path = os.path.join(root, name)
    return path if os.path.exists(path) else None


def look_at(path: str, flags: int) -> int:
    """Open a file that is only inspected: keep its access time where this account may, and do not block on a pipe
    without a writer."""
    try:
        return os.open(path, flags | os.O_NONBLOCK | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags | os.O_NONBLOCK)


def kind_of(path: str) -> str | None:
    """ "sif", "squashfs" or "folder" (an unpacked image); None for anything else and for what cannot be read."""
    if os.path.isdir(os.path.join(path, ".singularity.d")) or os.path.isdir(os.path.join(path, "bin")):
        return "folder"
    try:
        with open(path, "rb", opener=look_at) as handle:
            if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                return None
            head = handle.read(SIF_MAGIC_OFFSET + len(SIF_MAGIC))
    except (OSError, ValueError):
        return None
    if head[SIF_MAGIC_OFFSET:] == SIF_MAGIC:
        return "sif"
    return "squashfs" if head.startswith(SQUASHFS_MAGIC) else None
