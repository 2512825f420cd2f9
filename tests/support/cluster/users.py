"""The two ordinary users of the test cluster, and commands that run as one of them."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.cluster.layout import USERS
from tests.support.cluster.packages import Unavailable

LOCK = Path("/var/lock/trainmaster-users.lock")


def ensure_users() -> None:
    """Create the users that are missing, with a home of mode 0700. Several processes may ask for them at once."""
    missing = [name for name in USERS if not _exists(name)]
    if missing and os.geteuid() != 0:
        raise Unavailable(f"not root, and the user {missing[0]} does not exist")
    if missing:
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in missing:
                if not _exists(name):
                    command = ["useradd", "--create-home", "--shell", "/bin/bash", name]
                    subprocess.run(command, check=True, capture_output=True)
    for name in USERS:
        os.chmod(pwd.getpwnam(name).pw_dir, 0o700)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def run_as(
    user: str,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 60.0,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as `user` from their home with a small clean environment; never raises for its status."""
    account = pwd.getpwnam(user)
    clean = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": account.pw_dir,
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        list(argv),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd or account.pw_dir,
        env={**clean, **(environment or {})},
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=os.getgrouplist(user, account.pw_gid),
        check=False,
    )
