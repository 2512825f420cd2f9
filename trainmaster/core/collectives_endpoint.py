"""Where the ranks of one training meet (a Unix socket's path), and the key that authenticates their connections."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path

from trainmaster.core.errors import DistributedError

_LONGEST_PARENT = 60  # characters; a Unix socket's whole path may have 107


def socket_path(scope: str, port: int, node: int) -> str:
    """Path of the Unix socket for the ranks of `scope` ("all" or "local") on node number `node`."""
    # Outside a job several trainings of one user may run on one machine: torchrun's MASTER_PORT distinguishes them.
    where = "%s %d %d %s" % (scope, port, node, os.environ.get("MASTER_PORT", ""))
    name = hashlib.sha256(where.encode()).hexdigest()[:12]
    return str(_private_folder() / ("core-%s.sock" % name))


def connection_key(*, one_node: bool, port: int) -> bytes:
    """Return the key of this training's connections.

    Derived from the session token, or from TRAINMASTER_DISTRIBUTED_KEY; without either, on one machine, a
    random one in a file that only this user can read.
    """
    secret = os.environ.get("DET_SESSION_TOKEN") or os.environ.get("TRAINMASTER_DISTRIBUTED_KEY")
    if secret is None:
        if not one_node:
            raise ValueError(
                "outside a job, several nodes need a common secret: set TRAINMASTER_DISTRIBUTED_KEY to the same "
                "random text on all of them"
            )
        secret = _key_file(port)
    return hmac.new(secret.encode("utf-8"), b"trainmaster distributed context", hashlib.sha256).digest()


def _private_folder() -> Path:
    """Return a folder of this user alone, for sockets: the job's, or one under the system's temporary folder."""
    run_dir = os.environ.get("TRAINMASTER_RUN_DIR")
    if run_dir:
        return Path(run_dir)
    parent = tempfile.gettempdir()
    if len(parent) > _LONGEST_PARENT:
        parent = "/tmp"  # noqa: S108 - the folder below is this user's alone, or refused
    folder = Path(parent) / ("trainmaster-%d" % os.getuid())
    folder.mkdir(mode=0o700, exist_ok=True)
    status = os.lstat(str(folder))
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise DistributedError("%s must be a folder that only this user can enter; remove it" % folder)
    return folder


def _key_file(port: int) -> str:
    path = _private_folder() / ("core-%d.key" % port)
    try:
        file = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # Another rank made it, perhaps just now.
        deadline = time.monotonic() + 5
        while not path.read_text(encoding="ascii") and time.monotonic() < deadline:
            time.sleep(0.01)
        return path.read_text(encoding="ascii")
    secret = secrets.token_hex(32)
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(secret)
    return secret
