"""Reads the file that holds the master's current URL."""

from __future__ import annotations

import os
import stat
from typing import Optional

_LONGEST = 4096  # bytes


def read_url(path: str, owner: Optional[int] = None) -> Optional[str]:
    """Read the URL in the first line of the file `path`; None when there is none, or when the file cannot be trusted.

    The folder may be one in which everybody can leave files (sticky, like /tmp): trusted are a plain file of this
    account, of root, and of `owner`, the account that the master writes it with (its uid as the master saw it).
    """
    try:
        # O_NONBLOCK: opening a pipe in its place would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or not _believed(facts.st_uid, owner):
                return None
            text = file.read(_LONGEST).decode("utf-8")
    except (OSError, ValueError):
        return None
    url = text.partition("\n")[0].strip().rstrip("/")
    return url if url.startswith(("http://", "https://")) else None


def _believed(uid: int, owner: Optional[int]) -> bool:
    return uid in (os.geteuid(), 0, owner) or (owner is not None and _is_hidden(uid))


def _is_hidden(uid: int) -> bool:
    """Whether the kernel hides the file's owner: in a container with a user namespace of its own (Apptainer without
    set-uid), all accounts but the job's look alike. The master names the file to jobs only after it has written it
    itself, and where that can be another account's folder, it is sticky: no other account can have replaced it
    since."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            spans = [line.split() for line in file]
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            overflow = int(file.read())
    except (OSError, ValueError):
        return False
    return uid == overflow and spans != [["0", "0", "4294967295"]]
