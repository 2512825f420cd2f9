"""Writes the user's files to the node: a few small ones come with the lease, others as an archive, which stands beside
the job folder or is fetched."""

from __future__ import annotations

import binascii
import os
from typing import Any, Mapping, Optional, Sequence

from trainmaster.runtime.context_entries import entry_path, set_mode_and_time
from trainmaster.runtime.errors import BadContext, CallFailed, CallRejected, NoLease, NotLeased
from trainmaster.runtime.job import SHARED_CONTEXT, JobDescription, Work
from trainmaster.runtime.master import MasterCalls

_TIMEOUT = 120.0  # seconds for each wait on the network


def bring_context(master: MasterCalls, job: JobDescription, work: Work, target: str) -> None:
    """Write the user's files into the existing empty folder `target`. Waits `job.lease_patience` seconds for a master
    that is away.

    Raises BadContext with a sentence that names the entry, NoLease, NotLeased.
    """
    if work.files is not None:
        write_files(work.files, target)
    elif work.context_size:
        from trainmaster.runtime.untar import unpack_context  # the packers of archives cost more than small files

        packed = _in_folder(job.folder)
        unpack_context(_fetch(master, job) if packed is None else packed, target)


def write_files(files: Sequence[Mapping[str, Any]], target: str) -> None:
    """Write files and folders as the lease lists them: `path`, and for a file `mode`, `mtime` and `content` (base64).

    Raises BadContext.
    """
    root = os.path.realpath(target)
    for entry in files:
        try:
            name = entry["path"]
            path = os.path.join(root, entry_path(name, "entry"))
            if "content" not in entry:
                os.makedirs(path, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(_from_base64(entry["content"]))
            set_mode_and_time(path, entry["mode"], entry["mtime"])
        except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            raise BadContext("the context entry %r cannot be written: %s" % (entry.get("path"), error)) from error


def _in_folder(folder: str) -> Optional[bytes]:
    """Read the archive to which the job folder has a link; None where there is none, or it is not what the link
    says."""
    path = os.path.join(folder, SHARED_CONTEXT)
    try:
        link = os.readlink(path)
        with open(path, "rb") as file:
            packed = file.read()
    except OSError:
        return None
    import hashlib  # which loads OpenSSL

    return packed if hashlib.sha256(packed).hexdigest() == link.split("/")[-2] else None


def _from_base64(text: str) -> bytes:
    content = binascii.a2b_base64(text)
    # It skips what is no base64; only Python 3.11 and newer can refuse it.
    if binascii.b2a_base64(content, newline=False) != text.encode("ascii"):
        raise ValueError("the content is not base64")
    return content


def _fetch(master: MasterCalls, job: JobDescription) -> bytes:
    path = "/api/x1/allocations/%s/context" % job.allocation_id
    try:
        return master.fetch(path, patience=job.lease_patience, timeout=_TIMEOUT)
    except CallRejected as error:
        raise NotLeased("the files of allocation %s were refused: %s" % (job.allocation_id, error)) from error
    except CallFailed as error:
        raise NoLease("the user's files did not come within %d s: %s" % (job.lease_patience, error)) from error
