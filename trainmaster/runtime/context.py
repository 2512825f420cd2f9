"""Brings the user's files to the node: a few small ones came with the lease, others are fetched as an archive."""

from __future__ import annotations

import binascii
import os
import posixpath

from trainmaster.runtime.errors import Away, BadContext, NobodyThere, NotLeased, Rejected
from trainmaster.runtime.job import Job, Work
from trainmaster.runtime.master import Master

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

_TIMEOUT = 120.0  # seconds for each wait on the network


def bring_context(master: Master, job: Job, work: Work, target: str) -> None:
    """Write the user's files into the existing empty folder `target`. Waits `job.lease_patience` seconds for a master
    that is away.

    Raises BadContext with a sentence that names the entry, NobodyThere, NotLeased.
    """
    if work.files is not None:
        write_files(work.files, target)
    elif work.context_size:
        from trainmaster.runtime.untar import unpack_context  # the packers of archives cost more than small files

        unpack_context(_fetch(master, job), target)


def write_files(files: Sequence[Mapping[str, Any]], target: str) -> None:
    """Files and folders as the lease lists them: `path`, and of a file `mode`, `mtime` and `content` (base64).

    Raises BadContext.
    """
    root = os.path.realpath(target)
    for entry in files:
        try:
            name = entry["path"]
            path = os.path.join(root, inside(name, "entry"))
            if "content" not in entry:
                os.makedirs(path, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(_from_base64(entry["content"]))
            settle(path, entry["mode"], entry["mtime"])
        except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            raise BadContext("the context entry %r cannot be written: %s" % (entry.get("path"), error)) from error


def inside(name: str, what: str) -> str:
    """The path `name`, made plain; `what` names its role. Raises BadContext when it leads out of the context."""
    if name.startswith("/") or "\0" in name:
        raise BadContext("the context %s %r is an absolute path" % (what, name))
    clean = posixpath.normpath(name)
    if clean == ".." or clean.startswith("../"):
        raise BadContext("the context %s %r leads out of the context" % (what, name))
    return clean


def settle(path: str, mode: int, mtime: float) -> None:
    """What a file of the context keeps of its own: who may read and run it, and its age (seconds since the epoch)."""
    os.chmod(path, 0o600 | (mode & 0o755))
    os.utime(path, (mtime, mtime))


def _from_base64(text: str) -> bytes:
    content = binascii.a2b_base64(text)
    # It passes over what is no base64; Python 3.11 is the first that can be told not to.
    if binascii.b2a_base64(content, newline=False) != text.encode("ascii"):
        raise ValueError("the content is not base64")
    return content


def _fetch(master: Master, job: Job) -> bytes:
    path = "/api/x1/allocations/%s/context" % job.allocation_id
    try:
        return master.fetch(path, patience=job.lease_patience, timeout=_TIMEOUT)
    except Rejected as error:
        raise NotLeased("the files of allocation %s were refused: %s" % (job.allocation_id, error)) from error
    except Away as error:
        raise NobodyThere("the user's files did not come within %d s: %s" % (job.lease_patience, error)) from error
